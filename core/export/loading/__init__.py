"""Code of the model cards: it loads a download and reads images, with torch and without this project.

`core.export.card_code` puts a card's code together from these files; each gives what follows its line "The card begins
here.". What stands before it makes the file whole for whoever reads, checks or runs it here. Nothing imports them: they
need a download's `config.json` in the working directory. A file under `backbones/` has the name of an architecture's
family and defines `Backbone(tensors)`; one under `networks/` has the name of a network's family, or the one that a method
asks for by `inference`, and its last class is the version's network. Sizes are read from the tensors themselves.

The bytes of existing downloads rest on these files: what changes here changes them (a test tells which).
"""
