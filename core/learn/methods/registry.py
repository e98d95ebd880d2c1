"""List of all methods, each of which registers itself when its file is imported here."""

from core.learn.methods import (  # noqa: F401
    a_gem,
    analytic,
    der,
    der_net,
    der_pp,
    dlcft,
    dne,
    er,
    er_ace,
    ewc,
    ewc_online,
    finetune,
    gem,
    icarl,
    l2_sp,
    lwf,
    mas,
    si,
    slca,
    vpt,
)
from core.learn.registration import METHODS, get, register

__all__ = ["METHODS", "get", "register"]
