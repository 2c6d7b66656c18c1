"""Coefficients of approximations that more than one lowering uses, the constant first."""

from __future__ import annotations

# The error function: up to 0.5 `erf x = x·ERF_P(x²)/ERF_Q(x²)`, and from 0.46875 on `erf x = 1 - exp(-x²)·ERFC_P(x)/ERFC_Q(x)`.
# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969).
ERF_P = (
    3.20937758913846947e3,
    3.77485237685302021e2,
    1.13864154151050156e2,
    3.16112374387056560e0,
    1.85777706184603153e-1,
)
ERF_Q = (2.84423683343917062e3, 1.28261652607737228e3, 2.44024637934444173e2, 2.36012909523441209e1, 1.0)
ERFC_P = (
    1.23033935479799725e3,
    2.05107837782607147e3,
    1.71204761263407058e3,
    8.81952221241769090e2,
    2.98635138197400131e2,
    6.61191906371416295e1,
    8.88314979438837594e0,
    5.64188496988670089e-1,
    2.15311535474403846e-8,
)
ERFC_Q = (
    1.23033935480374942e3,
    3.43936767414372164e3,
    4.36261909014324716e3,
    3.29079923573345963e3,
    1.62138957456669019e3,
    5.37181101862009858e2,
    1.17693950891312499e2,
    1.57449261107098347e1,
    1.0,
)
# From 0.5 on `erfc x = exp(-x²)/(1 + 2x)·P(1 - 7/(x + 3))`, to a quarter of a unit in the last place of f64. After
# M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x)exp(x²)erfc x in 0 <= x < infinity",
# Math. Comp. 36 (1981).
ERFC_SCALED = (
    1.23299511862555251,
    -0.1221684772354921658,
    -0.00349601351336830699,
    0.04665458534673942377,
    -0.04180651066501206079,
    0.0228017995989511901,
    -0.008073603938415274965,
    0.001392061248276224433,
    0.0002474037667962373679,
    -0.0001978875877436844158,
    0.00001747909345612059304,
    0.00001886317633457653511,
    -4.577221716433357688e-6,
    -1.913499792218780204e-6,
    7.237614584078209246e-7,
    2.407551509427643244e-7,
    -1.049363358091182105e-7,
    -3.824065954333990289e-8,
    1.429599979984682531e-8,
    6.739054123644403587e-9,
    -1.64311908555075712e-9,
    -1.039973779633334521e-9,
    1.153860580361199366e-10,
    9.398532376264554358e-11,
)
# In f32 it is, from a half on, `erfc x = exp(-x²)/(1 + x)·P(t)`, t = ERFC_SLOPE/(1 + x) + ERFC_SHIFT, which takes one division;
# so fitted that the first coefficient is a float.
ERFC_SLOPE, ERFC_SHIFT = 3.44554448, -1.29703128
ERFC_SHORT = (
    0.7909073234,
    0.1629142016,
    -0.02515333705,
    -0.008579412475,
    0.003803526284,
    -6.598357868e-05,
    -0.0004451283021,
    0.0001730133372,
    -4.636105473e-07,
    -2.582874185e-05,
    7.766549061e-06,
)
# The error function in f32 without an exponential: up to ERF_SPLIT `erf x = x + x·ERF_NEAR(x²)`, from there to ERF_TOP
# `erf x = 1 - ERF_FAR(t)⁴` where t goes from -1 to 1, and beyond 1. Fitted for the least error in units in the last place, with
# coefficients rounded one after another; the function errs by at most 1.3 of these units.
ERF_SPLIT, ERF_TOP = 1.1875, 3.95
ERF_NEAR = (
    0.1283791661,
    -0.3761263192,
    0.1128370389,
    -0.02686167322,
    0.00521217566,
    -0.0008374465397,
    0.0001058172129,
    -7.965738405e-06,
)
ERF_FAR = (
    0.129404068,
    -0.2449900806,
    0.1734814048,
    -0.03677360713,
    -0.02024040371,
    0.01368207578,
    -0.0001835564472,
    -0.001804035041,
)
