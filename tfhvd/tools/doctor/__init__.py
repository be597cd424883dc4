"""``tfhvd doctor``: looks at the machines of a job before the job runs.

Reading order: ``command`` (start here), ``preflight`` (what ssh finds out about the hosts),
``probes`` (starts a probe as each rank, and asks them), ``probe`` (such a rank), ``examine`` (what
they are asked, in which order), ``link`` (measures what lies between two of them), ``schedule``
(who measures with whom, and when), ``survey`` (all that was found out, as a value), ``checks``
(survey -> what is well and what is not: pure), ``finding`` (one line of the result) and ``report``
(what is printed).
"""

from tfhvd.tools.doctor.command import add_arguments, run

__all__ = ["add_arguments", "run"]
