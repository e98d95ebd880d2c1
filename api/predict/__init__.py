"""Predictions: images in, labels and probabilities out. The stages of a request, in order:

1. `line`        the request takes a place, which counts its bytes until its response is delivered.
2. `body`        the body is read, limited in bytes and time; `images` finds the images in it,
                 `form` those of a form, `instances` those in base64.
3. `predictor`   the images are decoded and predicted piece by piece, in fair turns between owners
                 (`api.limits.turns`).
4. `decoder`     a process without torch decodes them to pixels; `network` is the process that
                 holds torch and predicts, and `gathering` batches images of several requests.
5. `answer`      the response is sent, and the place is released.
"""
