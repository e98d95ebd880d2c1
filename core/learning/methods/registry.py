"""List of all methods, each of which registers itself when its file is imported here."""

from core.learning.methods import (  # noqa: F401
    analytic,
    der_net,
    dlcft,
    dne,
    finetune,
    lwf,
    slca,
    vpt,
)
from core.learning.methods.penalties import (  # noqa: F401
    ewc,
    ewc_online,
    l2_sp,
    mas,
    si,
)
from core.learning.methods.registration import METHODS, get_method, register_method
from core.learning.methods.replay import (  # noqa: F401
    a_gem,
    der,
    der_pp,
    er,
    er_ace,
    gem,
    icarl,
)

__all__ = ["METHODS", "get_method", "register_method"]
