"""Groups of devices, in each of the forms that the compilers print."""

import pytest

from jaxlm.plan import groups
from jaxlm.plan.hlo import HloError

MESH = {"data": 2, "fsdp": 2, "tensor": 2}

TENSOR = ((0, 1), (2, 3), (4, 5), (6, 7))
FSDP = ((0, 2), (1, 3), (4, 6), (5, 7))
DATA = ((0, 4), (1, 5), (2, 6), (3, 7))
INSIDE = ((0, 1, 2, 3), (4, 5, 6, 7))
ALL = (tuple(range(8)),)


@pytest.mark.parametrize(
    ("text", "expected", "axes"),
    [
        ("{{0,4},{1,5},{2,6},{3,7}}, to_apply=%add", DATA, ("data",)),
        ("{}, dimensions={0}", ALL, ("data", "fsdp", "tensor")),
        ("[4,2]<=[8], dimensions={1}", TENSOR, ("tensor",)),
        ("[4,2]<=[2,4]T(1,0), dimensions={1}", DATA, ("data",)),
        ("[4,2]<=[2,2,2]T(0,2,1), dimensions={1}", FSDP, ("fsdp",)),
        ("[2,4]<=[8]", INSIDE, ("fsdp", "tensor")),
        ("mesh['data'=2,'fsdp'=2,'tensor'=2] {'fsdp'}, dimensions={0}", FSDP, ("fsdp",)),
        ("mesh['data'=2,'fsdp'=2,'tensor'=2] {'tensor','fsdp'}", INSIDE, ("fsdp", "tensor")),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", TENSOR, ("tensor",)),
        ("mesh[data=2,model=4] {data}", DATA, ("data",)),
        ("mesh['a'=8] {'a':(1)2}", DATA, ("data",)),
        ("mesh['a'=8] {'a':(2)2}", FSDP, ("fsdp",)),
        ("mesh['a'=8] {'a':(2)4}", INSIDE, ("fsdp", "tensor")),
        ("mesh['a'=4,'b'=2] {'a':(2)2,'b'}", INSIDE, ("fsdp", "tensor")),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}", TENSOR, ("tensor",)),
        ("mesh['a'=2,'b'=2,'c'=2], device_ids=(0,2,1,3,4,6,5,7) {'c'}", FSDP, ("fsdp",)),
    ],
)
def test_every_form(text, expected, axes):
    found = groups.parse(text, 8)
    assert found == expected
    assert groups.axes(found, MESH) == axes


def test_an_axis_of_one_is_never_named():
    found = groups.parse("mesh['data'=1,'fsdp'=8,'tensor'=1] {'fsdp','tensor'}", 8)
    assert groups.axes(found, {"data": 1, "fsdp": 8, "tensor": 1}) == ("fsdp",)


def test_unknown_forms_and_devices_outside_the_mesh_are_errors():
    with pytest.raises(HloError, match="not known"):
        groups.parse("<new form>", 8)
    with pytest.raises(HloError, match=r"device 7 .* not in the mesh"):
        groups.axes(TENSOR, {"data": 2, "fsdp": 2, "tensor": 1})
