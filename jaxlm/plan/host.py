"""Arguments in host memory, for GPUs that are not there.

JAX asks a device which memories it has, and a GPU of a topology does not say: a sharding for it
loses its `pinned_host`. The program then takes from the device what it gives back to the host.
"""

from jax import stages
from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]

KIND = "mhlo.memory_kind"


def keep_on_host(program: stages.Lowered) -> None:
    """Each donated argument lies where the result lies that takes its place.

    That is what a run's own shardings say; where they have been kept, nothing changes.
    """
    module = program.compiler_ir("stablehlo")
    assert module is not None
    (main,) = (op for op in module.body.operations if op.attributes["sym_name"].value == "main")
    results = [_attributes(attributes) for attributes in main.attributes["res_attrs"]]
    arguments = []
    with module.context:
        for attributes in main.attributes["arg_attrs"]:
            found = _attributes(attributes)
            if "tf.aliasing_output" in found:
                result = results[ir.IntegerAttr(found["tf.aliasing_output"]).value]
                found |= {KIND: result[KIND]} if KIND in result else {}
            arguments.append(ir.DictAttr.get(found))
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments)


def _attributes(attributes: ir.Attribute) -> dict[str, ir.Attribute]:
    return {named.name: named.attr for named in ir.DictAttr(attributes)}
