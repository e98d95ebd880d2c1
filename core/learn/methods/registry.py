"""The registry of methods: the import and the registration of each."""

from __future__ import annotations

from core.learn.method import Method
from core.learn.methods.a_gem import AGem
from core.learn.methods.analytic import Analytic
from core.learn.methods.der import Der
from core.learn.methods.der_net import DerNet
from core.learn.methods.der_pp import DerPlusPlus
from core.learn.methods.dlcft import Dlcft
from core.learn.methods.dne import Dne
from core.learn.methods.er import Er
from core.learn.methods.er_ace import ErAce
from core.learn.methods.ewc import Ewc
from core.learn.methods.ewc_online import EwcOnline
from core.learn.methods.finetune import Finetune
from core.learn.methods.gem import Gem
from core.learn.methods.icarl import Icarl
from core.learn.methods.l2_sp import L2Sp
from core.learn.methods.lwf import Lwf
from core.learn.methods.mas import Mas
from core.learn.methods.si import Si
from core.learn.methods.slca import Slca
from core.learn.methods.vpt import Vpt

METHODS: dict[str, type[Method]] = {}


def register(method: type[Method]) -> type[Method]:
    """Add a method under its name. Raises ValueError when the name is taken or the class is incomplete."""
    if method.name in METHODS:
        raise ValueError(f"a method named {method.name!r} is registered already")
    if method.neutral is None and not method.no_neutral:
        raise ValueError(f"{method.name}: without neutral hyper-parameters it must say why")
    METHODS[method.name] = method
    return method


def get(name: str) -> type[Method]:
    """The method of that name. Raises KeyError that lists the known names."""
    if name not in METHODS:
        raise KeyError(f"unknown method {name!r}: one of {', '.join(sorted(METHODS))}")
    return METHODS[name]


register(Finetune)
register(Analytic)
register(EwcOnline)
register(Ewc)
register(Mas)
register(Si)
register(Er)
register(ErAce)
register(Slca)
register(Der)
register(DerPlusPlus)
register(Gem)
register(AGem)
register(Vpt)
register(L2Sp)
register(Lwf)
register(Icarl)
register(Dlcft)
register(Dne)
register(DerNet)
