"""The polynomial P(t) of the normal distribution's tail, which activations.py explains and loops.py compiles.

It has its own file because loops.py needs Numba, and activations.py does not.
"""

TAIL = (  # of t, t², ...
    0.119605038823,
    0.121111214173,
    0.097756035667,
    0.135496462395,
    -0.066524438377,
    0.220085171899,
    -0.165077487088,
    0.037548027451,
)
