/* Vectors of a CPU, pairs of them, and what is computed with them. */
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

enum { R = ROWS, C = COLUMNS, D = R * C, CC = C * C, LANES = BYTES / sizeof(REAL), P = 2 };
static const REAL LOG2_E = (REAL)1.4426950408889634;

INLINE vector all(REAL x) { return (vector){0} + x; }

INLINE vector larger(vector x, vector y)
{
#if defined(__aarch64__) && IS_DOUBLE
    return (vector)vmaxq_f64((float64x2_t)x, (float64x2_t)y);
#elif defined(__aarch64__)
    return (vector)vmaxq_f32((float32x4_t)x, (float32x4_t)y);
#else
    words mask = (words)(x > y);
    return (vector)((mask & (words)x) | (~mask & (words)y));
#endif
}

/* A map, and x + A_k y for its number k. On ARM a product takes one lane of a vector for all lanes of the other, so a
 * map lies in as few vectors as hold it; elsewhere its numbers are broadcast one by one. */
#ifdef __aarch64__
enum { PARTS = (CC + LANES - 1) / LANES };
typedef struct {
    vector part[PARTS];
} Map;

INLINE integer first_in(integer part) { return part < PARTS - 1 ? part * LANES : CC > LANES ? CC - LANES : 0; }

INLINE Map map_at(const REAL *numbers)
{
    Map A;
    if (CC < LANES) {
        A.part[0] = all(0);
        FEW(k, CC) A.part[0][k] = numbers[k];
    } else FEW(k, PARTS) A.part[k] = *(const unaligned *)(numbers + first_in(k));
    return A;
}

#if IS_DOUBLE
#define TIMES_LANE(lane) (vector) vfmaq_laneq_f64((float64x2_t)x, (float64x2_t)y, (float64x2_t)part, lane)
#else
#define TIMES_LANE(lane) (vector) vfmaq_laneq_f32((float32x4_t)x, (float32x4_t)y, (float32x4_t)part, lane)
#endif
INLINE vector add_scaled(vector x, const Map *A, integer k, vector y)
{
    vector part = A->part[k / LANES];
    switch (k - first_in(k / LANES)) {
    case 0: return TIMES_LANE(0);
    case 1: return TIMES_LANE(1);
#if !IS_DOUBLE
    case 2: return TIMES_LANE(2);
    case 3: return TIMES_LANE(3);
#endif
    }
    return x;
}
#else
typedef struct {
    REAL number[CC];
} Map;

INLINE Map map_at(const REAL *numbers)
{
    Map A;
    FEW(k, CC) A.number[k] = numbers[k];
    return A;
}

INLINE vector add_scaled(vector x, const Map *A, integer k, vector y) { return x + A->number[k] * y; }
#endif

/* 2^x for x <= 0; 0 at `least` and below. x = n + f with n whole and |f| <= 1/2; n is added to the exponent of 2^f, a
 * polynomial: in double its Taylor series, in float one of least relative error, 2.4e-7 with all rounding, as a
 * product, which takes fewer instructions than Horner's rule where a multiply-add overwrites its addend. */
INLINE vector power_of_two(vector x)
{
    static const double taylor[] = {1.3691488853904124e-12, 2.5678435993488196e-11, 4.4455382718708101e-10,
                                    7.0549116208011209e-09, 1.0178086009239696e-07, 1.3215486790144305e-06,
                                    1.5252733804059838e-05, 1.5403530393381606e-04, 1.3333558146428441e-03,
                                    9.6181291076284769e-03, 5.5504108664821576e-02, 0.24022650695910069,
                                    0.69314718055994529,    1.0};
    const REAL least = IS_DOUBLE ? -1023 : -127;
    const REAL whole = IS_DOUBLE ? 6755399441055744.0 : 12582912.0; /* added, it rounds: 1.5 * 2^(digits - 1) */
    x = larger(x, all(least));
    vector n = x + whole, f = x - (n - whole), y;
    if (IS_DOUBLE) {
        y = all(taylor[0]);
        for (int k = 1; k < 14; k++) y = y * f + (REAL)taylor[k];
    } else {
        vector square = f * f;
#ifdef __aarch64__
        __asm__("" : "+w"(square)); /* one product for both sums */
#endif
        vector one = (square + (REAL)24.602005) + f * (REAL)-0.5121287;
        vector other = (square + (REAL)21.240099) + f * (REAL)7.8032794;
        y = (f * (REAL)1.3264727e-3) * (one * other) + 1;
    }
    return (vector)((words)y + ((words)n << (IS_DOUBLE ? 52 : 23)));
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
