/* Vectors of a CPU, and what is computed with them. The compiler is given IS_DOUBLE, 0 for float. */
#include <stdint.h>
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#if defined(BYTES) /* given with the command, by a test */
#elif defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline)) /* a loop that needs all registers for itself */
#define RELOAD __asm__ volatile("" ::: "memory") /* a load is cheaper than a copy between registers, or than too few */
#define EACH(x, count) for (integer x = 0; x < (count); x++)
#define FEW(x, count) _Pragma("GCC unroll 16") EACH(x, count) /* a loop to unroll: its count is a constant */

#if IS_DOUBLE
typedef double REAL;
typedef uint64_t word;
#else
typedef float REAL;
typedef uint32_t word;
#endif
typedef REAL vector __attribute__((vector_size(BYTES)));
typedef REAL unaligned __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef word words __attribute__((vector_size(BYTES)));
typedef int64_t integer;

enum { LANES = BYTES / sizeof(REAL) };
static const REAL LOG2_E = (REAL)1.4426950408889634;

INLINE vector all(REAL x) { return (vector){0} + x; }

/* x where the mask of a comparison is set, y elsewhere */
INLINE vector choose(words mask, vector x, vector y) { return (vector)((mask & (words)x) | (~mask & (words)y)); }

INLINE vector larger(vector x, vector y)
{
#if defined(__aarch64__) && IS_DOUBLE
    return (vector)vmaxq_f64((float64x2_t)x, (float64x2_t)y);
#elif defined(__aarch64__)
    return (vector)vmaxq_f32((float32x4_t)x, (float32x4_t)y);
#else
    return choose((words)(x > y), x, y);
#endif
}

/* 2^x for x <= 0; 0 at `least` and below. x = n + f with n whole and |f| <= 1/2; 2^f - 1 is a polynomial: in double its
 * Taylor series, in float one of least relative error, 2.4e-7 with all rounding, as a product, which takes fewer
 * instructions than Horner's rule where a multiply-add overwrites its addend. */
INLINE vector power_of_two(vector x)
{
    static const double taylor[] = {1.3691488853904124e-12, 2.5678435993488196e-11, 4.4455382718708101e-10,
                                    7.0549116208011209e-09, 1.0178086009239696e-07, 1.3215486790144305e-06,
                                    1.5252733804059838e-05, 1.5403530393381606e-04, 1.3333558146428441e-03,
                                    9.6181291076284769e-03, 5.5504108664821576e-02, 0.24022650695910069,
                                    0.69314718055994529};
    const REAL least = IS_DOUBLE ? -1023 : -127;
    const REAL whole = (IS_DOUBLE ? 6755399441055744.0 : 12582912.0) - least; /* added, it rounds: 1.5 * 2^(digits - 1),
                                                                   and with the bias of exponents it leaves those of 2^n */
    x = larger(x, all(least));
    vector n = x + whole, f = x - (n - whole), power = (vector)((words)n << (IS_DOUBLE ? 52 : 23)), y;
    if (IS_DOUBLE) {
        y = all(taylor[0]);
        for (int k = 1; k < 13; k++) y = y * f + (REAL)taylor[k];
        y = y * f;
    } else {
        vector square = f * f;
#ifdef __aarch64__
        __asm__("" : "+w"(square)); /* one product for both sums */
#endif
        vector one = (square + (REAL)24.602005) + f * (REAL)-0.5121287;
        vector other = (square + (REAL)21.240099) + f * (REAL)7.8032794;
        y = (f * (REAL)1.3264727e-3) * (one * other);
    }
    return power + power * y;
}

/* log x for normal x > 0. x = m 2^n with m from 1/2^(1/2) to 2^(1/2), and log m = 2 (s + s^3/3 + s^5/5 + ...) with
 * s = (m - 1) / (m + 1), |s| < 0.172: as many terms as count. */
INLINE vector logarithm(vector x)
{
    enum { DIGITS = IS_DOUBLE ? 52 : 23, TERMS = IS_DOUBLE ? 11 : 5 };
    const word least = IS_DOUBLE ? 0x3fe6a09e667f3bcd : 0x3f3504f3; /* the bits of the root */
    const words bits = (words)x - least;
    const words mantissa = (bits & (((word)1 << DIGITS) - 1)) + least;
    vector m = (vector)mantissa, n, s, square, sum = all((REAL)1 / (2 * TERMS - 1));
    EACH(lane, LANES) n[lane] = IS_DOUBLE ? (int64_t)bits[lane] >> DIGITS : (int32_t)bits[lane] >> DIGITS;
    s = (m - 1) / (m + 1), square = s * s;
    FEW(k, TERMS - 1) sum = sum * square + (REAL)1 / (2 * (TERMS - 1 - k) - 1);
    return n * (REAL)0.69314718055994531 + 2 * s * sum;
}

/* values[k] += the sum of the lanes of x[k] */
INLINE void add_lanes(REAL *values, const vector *x, integer count)
{
    integer k = 0;
#if defined(__aarch64__) && !IS_DOUBLE
    for (; k + 4 <= count; k += 4) {
        const float32x4_t *four = (const float32x4_t *)x + k;
        *(unaligned *)(values + k) += (vector)vpaddq_f32(vpaddq_f32(four[0], four[1]), vpaddq_f32(four[2], four[3]));
    }
#endif
    for (; k < count; k++) EACH(lane, LANES) values[k] += x[k][lane];
}
