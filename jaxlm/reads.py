"""Reads of Orbax that all end when one of them has failed.

Orbax 0.12.8 closes its event loop over those that are still on their way: they come back to a loop
that is gone, with a traceback each beside the words of our error, or die as garbage much later.
`tests/test_reads.py` fails where an upgrade makes this wrong, or needless.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from orbax.checkpoint._src import asyncio_utils


def prepare() -> None:
    """Call it before Orbax reads or writes."""
    asyncio_utils._run_sync_via_new_loop = run


def run[T](work: Coroutine[Any, Any, T]) -> T:
    """In an event loop of its own, of which nothing is left behind."""
    loop = _Loop()
    try:
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(work)
        except BaseException:
            loop.run_until_complete(_end_the_others())
            raise
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class _Loop(asyncio.SelectorEventLoop):
    """Deaf to a read that was cancelled and had come to its end in another thread already."""

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not self.is_closed():
                raise


async def _end_the_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
