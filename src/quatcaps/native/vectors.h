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

INLINE REAL least_lane(vector x)
{
#if defined(__aarch64__) && IS_DOUBLE
    return vminvq_f64((float64x2_t)x);
#elif defined(__aarch64__)
    return vminvq_f32((float32x4_t)x);
#else
    REAL least = x[0];
    EACH(lane, LANES) least = x[lane] < least ? x[lane] : least;
    return least;
#endif
}

typedef struct {
    REAL lane[LANES];
} __attribute__((aligned(BYTES), may_alias)) Constant;
#define CONSTANT(x) {{[0 ... LANES - 1] = x}}

/* x from memory, to be added to. On ARM a multiply-add overwrites its addend, and a copy between registers takes as long
 * as a multiply-add, a load none of that time. `near`, any number at hand, keeps the compiler from loading it once. */
INLINE vector again(const void *x, vector near)
{
#ifdef __aarch64__
    vector sum;
    __asm__("ldr %q0, %1" : "=w"(sum) : "m"(*(const vector *)x), "w"(near));
    return sum;
#else
    (void)near;
    return *(const vector *)x;
#endif
}

/* 2^x for x <= 0; 0 at `least` and below. x = n + f with n whole and |f| <= 1/2; 2^f is a polynomial, the highest power
 * first: in double its Taylor series, in float one of least relative error, 1.7e-7 with all rounding. */
#if IS_DOUBLE
enum { DEGREE = 13 };
static const Constant TERMS_OF_POWER[DEGREE + 1] = {
    CONSTANT(1.3691488853904124e-12), CONSTANT(2.5678435993488196e-11), CONSTANT(4.4455382718708101e-10),
    CONSTANT(7.0549116208011209e-09), CONSTANT(1.0178086009239696e-07), CONSTANT(1.3215486790144305e-06),
    CONSTANT(1.5252733804059838e-05), CONSTANT(1.5403530393381606e-04), CONSTANT(1.3333558146428441e-03),
    CONSTANT(9.6181291076284769e-03), CONSTANT(5.5504108664821576e-02), CONSTANT(0.24022650695910069),
    CONSTANT(0.69314718055994529), CONSTANT(1)};
#else
enum { DEGREE = 5 };
static const Constant TERMS_OF_POWER[DEGREE + 1] = {CONSTANT(1.3211604e-3f), CONSTANT(9.671293e-3f),
                                                    CONSTANT(0.055509f),     CONSTANT(0.24022253f),
                                                    CONSTANT(0.6931469f),    CONSTANT(1)};
#endif

/* On the way to 2^x, which may be gone in steps with other work between them: f, 2^n, and the polynomial so far. */
typedef struct {
    vector f, whole_power, y;
} Power;

INLINE Power power_begun(vector x)
{
    const REAL least = IS_DOUBLE ? -1023 : -127;
    const REAL whole = (IS_DOUBLE ? 6755399441055744.0 : 12582912.0) - least; /* added, it rounds: 1.5 * 2^(digits - 1),
                                                                   and with the bias of exponents it leaves those of 2^n */
    x = larger(x, all(least));
    const vector n = x + whole;
    return (Power){x - (n - whole), (vector)((words)n << (IS_DOUBLE ? 52 : 23)), again(TERMS_OF_POWER, x)};
}

/* k = 0 .. DEGREE - 1 */
INLINE void step_to_power(Power *p, integer k) { p->y = again(TERMS_OF_POWER + k + 1, p->f) + p->y * p->f; }
INLINE vector power_done(const Power *p) { return p->whole_power * p->y; }

INLINE vector power_of_two(vector x)
{
    Power p = power_begun(x);
    FEW(k, DEGREE) step_to_power(&p, k);
    return power_done(&p);
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
    const float32x4_t *lanes = (const float32x4_t *)x, none = vdupq_n_f32(0);
    _Pragma("GCC unroll 16") for (; k + 4 <= count; k += 4)
        *(unaligned *)(values + k) += (vector)vpaddq_f32(vpaddq_f32(lanes[k], lanes[k + 1]),
                                                         vpaddq_f32(lanes[k + 2], lanes[k + 3]));
    if (k < count) {
        const float32x4_t more = vpaddq_f32(lanes[k], k + 1 < count ? lanes[k + 1] : none);
        const float32x4_t sums = vpaddq_f32(more, k + 2 < count ? vpaddq_f32(lanes[k + 2], none) : none);
        FEW(lane, 3) if (k + lane < count) values[k + lane] += sums[lane];
        return;
    }
#endif
    for (; k < count; k++) EACH(lane, LANES) values[k] += x[k][lane];
}
