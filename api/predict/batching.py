"""Stage 4 of predict: images of several requests to one version are predicted in one batch.

A turn at the process that holds torch costs about as much for one image as for several. Decoded
images of an owner's requests therefore wait until the process is free, and are then sent together.
If it is free at once, they wait up to `GATHER_S` seconds for requests whose images are being
decoded, or until `ENOUGH_IMAGES` have come. Turns are fair between owners
(`api.limits.resource_pool`). A failed turn is repeated for each of its requests alone, so that an
error of one does not affect the others.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from api.limits.resource_pool import ResourcePool
from api.predict.prediction_process import EncodedPredictions, PredictionProcess
from core.errors import PerennialError

GATHER_S = 0.005
ENOUGH_IMAGES = 4
"""Images for which a free process waits, at most `GATHER_S`.

More would not cost less: on one core, an image of 32 pixels in the graph of ResNet-20 took 6.2 ms
alone, 5.1 in a batch of four and 5.0 in one of 16. While a batch is predicted, the next images are
decoded.
"""
GATHER_IMAGES = 32
GATHER_BYTES = 16 << 20
"""Maximum images, and bytes of them, in a batch of several requests; a single request may send
more.
"""
SHARED_IMAGES = 8
SHARED_S = 1.0
"""The same limit on images while another owner, who has asked within this time, waits for
the turn.
"""


@dataclass
class _QueuedImages:
    """The decoded images of one predict request that waits for a shared batch, and its results so
    far.
    """

    header: bytes
    manifest: bytes
    pixels: Sequence[bytes]
    since: float
    result: "asyncio.Future[EncodedPredictions]"
    answered: EncodedPredictions = field(default_factory=EncodedPredictions)
    is_alone: bool = False

    @property
    def remaining_images(self) -> Sequence[bytes]:
        """The request's images that have no prediction yet."""
        return self.pixels[len(self.answered.items) :]


class PredictionBatcher:
    """Batches images of several requests before the process predicts them. For one event loop.

    Args:
        network: the process; its calls run in `thread`.
    """

    def __init__(self, network: PredictionProcess, thread: ThreadPoolExecutor) -> None:
        self._turns = ResourcePool([network])
        self._thread = thread
        self._waiting: dict[str, deque[_QueuedImages]] = {}
        self._coming: Counter[str] = Counter()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._last = ("", float("-inf"))
        self._last_other = float("-inf")
        """The owner of the last request and its time, and the time of the last request of another
        owner.
        """

    @contextlib.contextmanager
    def hold_batch_while_decoding_images(self, owner: str) -> Iterator[None]:
        """Announce within the block that images of an owner are being decoded, so that a batch
        waits.
        """
        self._coming[owner] += 1
        try:
            yield
        finally:
            self._coming[owner] -= 1
            if not self._coming[owner]:
                del self._coming[owner]
            self._wake_waiting_requests_of_owner(owner)

    async def predict_in_shared_batch(
        self, owner: str, header: bytes, manifest: bytes, pixels: Sequence[bytes]
    ) -> EncodedPredictions:
        """Predict images together with other requests' ones; otherwise as `PredictionProcess`."""
        loop = asyncio.get_running_loop()
        if self._last[0] != owner:
            self._last_other = self._last[1]
        self._last = (owner, loop.time())
        piece = _QueuedImages(header, manifest, pixels, loop.time(), loop.create_future())
        self._waiting.setdefault(owner, deque()).append(piece)
        self._wake_waiting_requests_of_owner(owner)
        if owner not in self._asking:
            self._asking[owner] = asyncio.create_task(self._predict_waiting_of_owner(owner))
        return await piece.result

    def _wake_waiting_requests_of_owner(self, owner: str) -> None:
        if owner in self._changed:
            self._changed[owner].set()

    async def _predict_waiting_of_owner(self, owner: str) -> None:
        """Predict an owner's waiting images, batch after batch, until none are left."""
        self._changed[owner] = asyncio.Event()
        try:
            while self._drop_ended_and_has_waiting(owner):
                await self._wait_for_more_images(owner)
                async with self._turns.lend_resource_in_turn(owner) as network:
                    if pieces := self._choose_waiting_requests_for_batch(owner):
                        await self._predict_shared_batch(network, pieces)
        except BaseException as error:
            # The task ends here, so nothing else would complete these requests.
            for piece in self._waiting.get(owner, ()):
                if not piece.result.done():
                    piece.result.set_exception(error)
            raise
        finally:
            # Nothing was awaited since the last look, so no request is lost with its owner's queue.
            for per_owner in (self._waiting, self._asking, self._changed):
                per_owner.pop(owner, None)

    def _drop_ended_and_has_waiting(self, owner: str) -> bool:
        """Drop requests that are finished or whose client has left; return True if any are waiting."""
        waiting = self._waiting[owner]
        while waiting and waiting[0].result.done():
            waiting.popleft()
        return bool(waiting)

    async def _wait_for_more_images(self, owner: str) -> None:
        changed, waiting = self._changed[owner], self._waiting[owner]
        end = waiting[0].since + GATHER_S
        # When the time is over, the images that have come are predicted.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                while (
                    self._coming[owner]
                    and sum(len(piece.remaining_images) for piece in waiting) < ENOUGH_IMAGES
                ):
                    changed.clear()
                    await changed.wait()

    def _choose_waiting_requests_for_batch(self, owner: str) -> list[_QueuedImages]:
        """Choose the requests to predict in one batch: the oldest, and others for the same version."""
        waiting = [piece for piece in self._waiting[owner] if not piece.result.done()]
        max_images = SHARED_IMAGES if self._are_other_owners_active(owner) else GATHER_IMAGES
        chosen = waiting[:1]
        if chosen and not chosen[0].is_alone:
            first = chosen[0]
            images = len(first.remaining_images)
            for piece in waiting[1:]:
                images += len(piece.remaining_images)
                # The longest-waiting piece is always sent: this limits only what joins it.
                if images > max_images or images * len(first.remaining_images[0]) > GATHER_BYTES:
                    break
                if (piece.header, piece.manifest, piece.is_alone) == (
                    first.header,
                    first.manifest,
                    False,
                ):
                    chosen.append(piece)
        return chosen

    def _are_other_owners_active(self, owner: str) -> bool:
        other_at = self._last_other if self._last[0] == owner else self._last[1]
        return other_at > asyncio.get_running_loop().time() - SHARED_S

    async def _predict_shared_batch(
        self, network: PredictionProcess, pieces: list[_QueuedImages]
    ) -> None:
        first, pixels = pieces[0], [one for piece in pieces for one in piece.remaining_images]
        call = asyncio.get_running_loop().run_in_executor(
            self._thread,
            network.predict_images_until_turn_ends,
            first.header,
            first.manifest,
            pixels,
        )
        try:
            predictions = await call
        # One request may be at fault, so each is predicted by itself next.
        except PerennialError as error:
            for piece in pieces:
                piece.is_alone = True
            if len(pieces) == 1 and not first.result.done():
                first.result.set_exception(error)
            return
        at = 0
        for piece in pieces:
            count = len(piece.remaining_images)
            piece.answered.append_predictions(
                EncodedPredictions(predictions.items[at : at + count], predictions.engines)
            )
            at += count
            # A turn may predict only the first images: the others wait for the next turn.
            if not piece.remaining_images and not piece.result.done():
                piece.result.set_result(piece.answered)
