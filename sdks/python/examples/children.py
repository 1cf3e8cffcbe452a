"""Child workflows: runs that another run starts, and whose results are inputs of the parent.

`python children.py`
"""

import asyncio
import tempfile

from onward import Ctx, Failure, Onward, workflow


async def resize(name: str, pace: str) -> int:
    if name == "broken":
        raise Failure("not a photo", retryable=False)
    print(f"resized {name} at {pace} pace")
    return 100


@workflow("photo")
async def photo(ctx: Ctx, name: str) -> int:
    pace = await ctx.signal("pace", str).recv() if name == "slow" else "usual"
    return await ctx.step("resize", resize, name, pace)


@workflow("album")
async def album(ctx: Ctx, names: list[str]) -> str:
    photos = (ctx.child(photo, name, id=f"photo-{name}") for name in names)
    sizes = await asyncio.gather(*photos, return_exceptions=True)
    total = sum(size for size in sizes if isinstance(size, int))
    failures = [str(size) for size in sizes if isinstance(size, Failure)]

    # A call is a handle until it is awaited: signal the child, cancel it, or await it later.
    slow = ctx.child(photo, "slow")
    ctx.send_signal(slow.run_id, "pace", "double")
    return f"{total} bytes, then {await slow}; failed: {failures}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[album, photo]) as onward:
            run = await onward.start(album, ["beach", "broken", "sunset"], id="album-1")
            print(f"album: {await run.result()}")
            page = await onward.list_runs()
            print("\n".join(sorted(f"{found['key']['id']} {found['kind']} {found['status']}" for found in page["runs"])))


if __name__ == "__main__":
    asyncio.run(main())
