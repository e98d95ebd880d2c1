"""Predict: images come in, labels and probabilities go out. The way of an image, in order:

1. `line`        the request takes a place, which counts its bytes until its answer has been taken.
2. `body`        the body is read, bounded in bytes and time; `images` finds the images in it, `form` those of a form,
                 `instances` those in base64.
3. `predictor`   the images are decoded and asked about piece by piece, in turns between owners (`api.turns`).
4. `decoder`     a process without torch makes pixels of them; `network` is the process that holds torch and answers,
                 and `gathering` asks it about the images of several requests at once.
5. `answer`      the answer is sent, and the place is left.
"""
