"""Predictions: images in, labels and probabilities out. The stages of a request, in order:

1. `concurrency`  the request takes a slot, which counts its bytes until its response is delivered.
2. `body`         the body is read, limited in bytes and time; `images` finds the images in it,
                  `form` those of a form, `instances` those in base64.
3. `predictor`    the images are decoded and predicted piece by piece, in fair turns between owners
                  (`api.limits.resource_pool`).
4. `decoder`      a process without torch decodes them to pixels; `prediction_process` is the client
                  of the process that holds torch and predicts, and `batching` puts images of
                  several requests into one batch.
5. `body`         the response is sent, and the slot is released.

`prediction` takes a request through these stages, for the route and for the page.
"""
