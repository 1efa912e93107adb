/* What a pose and its map are: sizes, and products with a map's numbers. */
#include "vectors.h"

enum { R = ROWS, C = COLUMNS, D = R * C, CC = C * C, P = 2 }; /* P: vectors go in pairs */

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
