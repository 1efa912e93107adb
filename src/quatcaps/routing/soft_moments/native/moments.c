/* Moments of votes that are never held, and their gradients, on a CPU's vector units.
 *
 * The symbols are those of `soft_moments`. A child i of a window has pose u and activation a; a parent j has centre m,
 * precision p and logit c; h counts pose dimensions; v = A u is a vote:
 *
 *     d = v - m        l = c - 1/2 sum_h p d^2        r = softmax_j(l)        rho = a r
 *     S0 = sum_i rho   S1 = sum_i rho d               S2 = sum_i rho d^2
 *
 * and with g0, g1, g2 the gradients of these sums:
 *
 *     g  = g0 + sum_h d (g1 + g2 d)                   the gradient of rho
 *     da = sum_j r g                                  of the activation
 *     dl = rho (g - da)                               of the logit: dc = sum_i dl, dp = -1/2 sum_i dl d^2
 *     dd = rho (g1 + 2 g2 d) - dl p d                 of the deviation: dm = -sum_i dd, du = A^T dd, dA = dd u^T
 *
 * Under uniform assignments r = 1/J, so rho = a/J and there is no dl.
 *
 * The lanes of a vector are parent positions of one image, and vectors go in pairs, which share the loads of a map. A
 * block is `wide` pairs; what belongs to its parents lies in a scratch that the nearest caches hold, as a record of
 * pairs for each (pair, parent). The children of the window pass by, some at a time, and each
 * sum is in registers: the inner loop runs over parents for a child's sums, over children for a parent's.
 * Lanes beyond the last position repeat it with activation 0.
 *
 * Tensors are contiguous: poses (N, I, D, height, width), maps (offsets, I, J, C, C), parents (N, J, D, H, W). The
 * compiler is given IS_DOUBLE, 0 for float, and a pose's ROWS and COLUMNS.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
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
enum { MOST_WIDE = 4, MOST_CHILDREN = 16, SOME_CHILDREN = 8, RUN = 32, SCRATCH = 128 * 1024 };
static const REAL LOG2_E = (REAL)1.4426950408889634;

typedef struct {
    integer images, children, parents, height, width;
    integer down, across, stride, shared, grid_height, grid_width;
    integer groups, parts; /* a backward's work: groups of images x parts of the child types */
    const REAL *poses, *activations, *maps, *centre, *precision, *logit, *grad_mass, *grad_first, *grad_second;
    REAL *mass, *first, *second, *mean, *kept;
    REAL *grad_poses, *grad_activations, *grad_maps, *grad_centre, *grad_precision, *grad_logit;
    integer next; /* the next piece of work that no thread has taken */
} Task;

/* Positions first .. first + count of an image, and where the window of each begins in the children's grid. */
typedef struct {
    integer image, first, count, wide;
    integer start[MOST_WIDE * P * LANES];
    int contiguous[MOST_WIDE * P];
} Block;

/* ---- vectors ---- */

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

/* A map, and x + A_k y for its number k. On ARM a product takes one lane of a vector for all lanes of the other, so a map
 * lies in as few vectors as hold it; elsewhere its numbers are broadcast one by one. */
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

/* 2^x for x <= 0, or 2^least where x is less. x = n + f with n whole and |f| <= 1/2; n is added to the exponent of 2^f,
 * a polynomial: in double its Taylor series, in float one of least relative error, 2.4e-7 with all rounding, as a
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

/* ---- blocks: what moves between tensors and vectors ---- */

INLINE integer smaller(integer x, integer y) { return x < y ? x : y; }
INLINE integer positions_of(const Task *t) { return t->grid_height * t->grid_width; }
INLINE integer places_of(const Task *t) { return t->down * t->across; }
INLINE integer area_of(const Task *t) { return t->height * t->width; }

/* How many lanes of a vector are positions: all, but in the last ones of an image. */
INLINE integer lanes_of(const Block *b, integer v)
{
    integer left = b->count - v * LANES;
    return left < 0 ? 0 : smaller(LANES, left);
}

static Block block_of(const Task *t, integer image, integer number, integer wide)
{
    Block b = {.image = image, .first = number * wide * P * LANES};
    b.count = smaller(wide * P * LANES, positions_of(t) - b.first);
    b.wide = (b.count + P * LANES - 1) / (P * LANES);
    EACH(k, b.wide * P * LANES) {
        integer position = b.first + smaller(k, b.count - 1);
        b.start[k] = (position / t->grid_width * t->width + position % t->grid_width) * t->stride;
    }
    EACH(v, b.wide * P) {
        b.contiguous[v] = 1;
        EACH(lane, LANES) b.contiguous[v] &= b.start[v * LANES + lane] == b.start[v * LANES] + lane;
    }
    return b;
}

/* What the positions of a vector see of a plane of children. */
INLINE vector gather(const REAL *plane, const Block *b, integer v)
{
    vector x;
    if (b->contiguous[v]) return *(const unaligned *)(plane + b->start[v * LANES]);
    EACH(lane, LANES) x[lane] = plane[b->start[v * LANES + lane]];
    return x;
}

/* Adds to the children of a plane: no two positions mean the same child. */
INLINE void scatter(REAL *plane, vector x, const Block *b, integer v)
{
    if (b->contiguous[v]) *(unaligned *)(plane + b->start[v * LANES]) += x;
    else EACH(lane, lanes_of(b, v)) plane[b->start[v * LANES + lane]] += x[lane];
}

/* Numbers of the positions of a vector, from those of the block. */
INLINE vector fetch(const REAL *values, const Block *b, integer v)
{
    vector x;
    if (lanes_of(b, v) == LANES) return *(const unaligned *)(values + v * LANES);
    EACH(lane, LANES) x[lane] = values[smaller(v * LANES + lane, b->count - 1)];
    return x;
}

INLINE void put(REAL *values, vector x, const Block *b, integer v)
{
    if (lanes_of(b, v) == LANES) *(unaligned *)(values + v * LANES) = x;
    else EACH(lane, lanes_of(b, v)) values[v * LANES + lane] = x[lane];
}

/* A tensor (N, J, dims, H, W), times a factor, into records of `step` pairs for each (pair, parent), and back. */
APART void fetch_parents(vector *x, integer step, const REAL *values, integer dims, REAL factor, const Task *t,
                         const Block *b)
{
    const integer J = t->parents;
    values += b->image * J * dims * positions_of(t) + b->first;
    EACH(w, b->wide) EACH(j, J) EACH(h, dims) FEW(q, P)
        x[((w * J + j) * step + h) * P + q] = fetch(values + (j * dims + h) * positions_of(t), b, w * P + q) * factor;
}

APART void put_parents(REAL *values, const vector *x, integer step, integer dims, REAL factor, const Task *t,
                       const Block *b)
{
    const integer J = t->parents;
    values += b->image * J * dims * positions_of(t) + b->first;
    EACH(w, b->wide) EACH(j, J) EACH(h, dims) FEW(q, P)
        put(values + (j * dims + h) * positions_of(t), x[((w * J + j) * step + h) * P + q] * factor, b, w * P + q);
}

/* ---- children ---- */

/* What the backward keeps lies as (N, runs of RUN positions, children in the window, 2, RUN); a pair is in one run. */
INLINE REAL *kept_at(const Task *t, const Block *b, integer w)
{
    integer position = b->first + w * P * LANES, runs = (positions_of(t) + RUN - 1) / RUN;
    return t->kept + (b->image * runs + position / RUN) * places_of(t) * t->children * 2 * RUN + position % RUN;
}

typedef struct {
    const REAL *maps;
    integer pose, activation, map, kept; /* where its numbers begin in their tensors */
} Child;

/* The next children, as many as there are up to `most`, of child types first .. end, places outermost. */
APART integer next_children(Child *child, integer most, integer number, integer first, integer end, const Task *t,
                            const Block *b)
{
    integer types = end - first, count = smaller(most, places_of(t) * types - number);
    EACH(k, count) {
        integer place = (number + k) / types, i = first + (number + k) % types, in_window = place * t->children + i;
        integer corner = place / t->across * t->width + place % t->across, in_all = b->image * t->children + i;
        child[k].pose = in_all * D * area_of(t) + corner;
        child[k].activation = in_all * area_of(t) + corner;
        child[k].map = (t->shared ? i : in_window) * t->parents * CC;
        child[k].kept = in_window * 2 * RUN;
        child[k].maps = t->maps + child[k].map;
    }
    return count;
}

/* u and a at a pair of vectors */
APART void fetch_child(vector *u, vector *a, const Child *child, const Task *t, const Block *b, integer w)
{
    FEW(q, P) {
        EACH(h, D) u[h * P + q] = gather(t->poses + child->pose + h * area_of(t), b, w * P + q);
        a[q] = gather(t->activations + child->activation, b, w * P + q);
        for (integer lane = lanes_of(b, w * P + q); lane < LANES; lane++) a[q][lane] = 0;
    }
}

APART void scatter_child(const vector *du, const vector *da, const Child *child, const Task *t, const Block *b,
                         integer w)
{
    FEW(q, P) {
        EACH(h, D) scatter(t->grad_poses + child->pose + h * area_of(t), du[h * P + q], b, w * P + q);
        scatter(t->grad_activations + child->activation, da[q], b, w * P + q);
    }
}

/* d = A u - m of a row of a pose, given -m, all at a pair of vectors */
INLINE void deviate(vector *d, const vector *minus_m, const REAL *map, const vector *u)
{
    const Map A = map_at(map);
    FEW(x, C * P) d[x] = minus_m[x];
    FEW(c, C) FEW(h, C) FEW(q, P) d[h * P + q] = add_scaled(d[h * P + q], &A, h * C + c, u[c * P + q]);
}

/* c becomes log2(e) (c - max_j c): an offset that all logits share costs no digits. */
APART void relative_logits(vector *c, integer step, integer J, integer W)
{
    EACH(w, W) FEW(q, P) {
        vector top = c[w * J * step * P + q];
        EACH(j, J) top = larger(top, c[(w * J + j) * step * P + q]);
        EACH(j, J) c[(w * J + j) * step * P + q] = (c[(w * J + j) * step * P + q] - top) * LOG2_E;
    }
}

/* ---- moments under given parents. Records: -m, p/2, c; S1, S2, S0 ---- */

enum { F = 2 * D + 1 };

/* d and l of a child to all parents, and the maximum of l */
APART void logits(vector *d, vector *l, vector *top, const vector *parent, const REAL *maps, const vector *u, integer J)
{
    vector highest[P];
    FEW(q, P) highest[q] = all(-(REAL)__builtin_inf());
    for (const vector *end = parent + J * F * P; parent < end; parent += F * P, maps += CC, l += P) {
        vector sum[P], x[C * P], scaled[C * P];
        FEW(q, P) sum[q] = parent[2 * D * P + q];
        EACH(r, R) {
            deviate(x, parent + r * C * P, maps, u + r * C * P);
            FEW(h, C * P) scaled[h] = parent[(D + r * C) * P + h] * x[h];
            FEW(h, C * P) sum[h % P] -= scaled[h] * x[h];
            FEW(h, C * P) d[h] = x[h];
            d += C * P;
        }
        FEW(q, P) highest[q] = larger(highest[q], sum[q]);
        FEW(q, P) l[q] = sum[q];
    }
    FEW(q, P) top[q] = highest[q];
}

/* l becomes exp(l - max_j l), for two parents at a time; the sum of these, times g where it is given */
INLINE void raise(vector *l, vector *total, const vector *top, const vector *g, integer J)
{
    vector sum[2 * P], highest[P], x[2 * P];
    FEW(q, P) highest[q] = top[q];
    FEW(q, 2 * P) sum[q] = all(0);
    if (J % 2) {
        FEW(q, P) l[q] = power_of_two(l[q] - highest[q]);
        FEW(q, P) sum[q] = g ? l[q] * g[q] : l[q];
    }
    for (integer k = J % 2 * P; k < J * P; k += 2 * P) {
        FEW(q, 2 * P) x[q] = power_of_two(l[k + q] - highest[q % P]);
        FEW(q, 2 * P) l[k + q] = x[q];
        FEW(q, 2 * P) sum[q] += g ? x[q] * g[k + q] : x[q];
    }
    FEW(q, P) total[q] = sum[q] + sum[P + q];
}

APART void exponentials(vector *l, vector *total, const vector *top, integer J) { raise(l, total, top, NULL, J); }

/* Adds what some children give to a row of one parent's pose; a is theirs over their sum of exponentials. */
APART void add_votes(vector *sum, const vector *d, const vector *weight, const vector *a, integer some, integer J,
                     integer r)
{
    vector mass[P], first[C * P], second[C * P], rho[P], given[C * P];
    FEW(q, P) mass[q] = all(0);
    FEW(x, C * P) first[x] = sum[r * C * P + x], second[x] = sum[(D + r * C) * P + x];
    d += r * C * P;
    EACH(k, some) {
        FEW(q, P) rho[q] = weight[q] * a[k * P + q];
        FEW(q, P) mass[q] += rho[q];
        FEW(x, C * P) given[x] = rho[x % P] * d[x];
        FEW(x, C * P) first[x] += given[x];
        FEW(x, C * P) second[x] += given[x] * d[x];
        weight += J * P, d += J * D * P;
    }
    FEW(x, C * P) sum[r * C * P + x] = first[x], sum[(D + r * C) * P + x] = second[x];
    if (!r) FEW(q, P) sum[2 * D * P + q] += mass[q];
}

static void moments(const Task *t, const Block *b, vector *scratch)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * t->children;
    vector *parents = scratch, *sums = parents + J * W * F * P, *weight = sums + J * W * F * P;
    vector *d = weight + MOST_CHILDREN * J * P, u[D * P], a[MOST_CHILDREN * P], top[P], total[P];
    Child child[MOST_CHILDREN];

    fetch_parents(parents, F, t->centre, D, -1, t, b);
    fetch_parents(parents + D * P, F, t->precision, D, LOG2_E / 2, t, b);
    fetch_parents(parents + 2 * D * P, F, t->logit, 1, 1, t, b);
    relative_logits(parents + 2 * D * P, F, J, W);
    memset(sums, 0, J * W * F * P * sizeof(vector));
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, MOST_CHILDREN, number, 0, t->children, t, b);
        EACH(w, W) {
            EACH(k, some) {
                fetch_child(u, a + k * P, child + k, t, b, w);
                logits(d + k * J * D * P, weight + k * J * P, top, parents + w * J * F * P, child[k].maps, u, J);
                exponentials(weight + k * J * P, total, top, J);
                FEW(q, P) a[k * P + q] /= total[q];
                if (t->kept) FEW(q, P) {
                    unaligned *kept = (unaligned *)(kept_at(t, b, w) + child[k].kept) + q;
                    kept[0] = top[q], kept[RUN / LANES] = 1 / total[q];
                }
            }
            EACH(j, J) EACH(r, R)
                add_votes(sums + (w * J + j) * F * P, d + j * D * P, weight + j * P, a, some, J, r);
        }
    }
    put_parents(t->first, sums, F, D, 1, t, b);
    put_parents(t->second, sums + D * P, F, D, 1, t, b);
    put_parents(t->mass, sums + 2 * D * P, F, 1, 1, t, b);
}

/* ---- moments under uniform assignments. Record: the mean, S1, S2, S0 ----
 * The mean first, then the sums about it: so a variance far below the mean's square keeps its digits. */

enum { U = 3 * D + 1 };

APART void add_to_mean(vector *sum, const Child *child, const vector *au, integer some, integer j, integer r)
{
    vector total[C * P];
    FEW(x, C * P) total[x] = sum[r * C * P + x];
    EACH(k, some) {
        deviate(total, total, child[k].maps + j * CC, au + (k * D + r * C) * P);
    }
    FEW(x, C * P) sum[r * C * P + x] = total[x];
}

APART void add_about_mean(vector *sum, const Child *child, const vector *u, const vector *a, integer some, integer j,
                          integer r)
{
    vector first[C * P], second[C * P], d[C * P], given[C * P];
    sum += r * C * P;
    FEW(x, C * P) first[x] = sum[D * P + x], second[x] = sum[2 * D * P + x];
    EACH(k, some) {
        RELOAD;
        deviate(d, sum, child[k].maps + j * CC, u + (k * D + r * C) * P);
        FEW(x, C * P) given[x] = a[k * P + x % P] * d[x];
        FEW(x, C * P) first[x] += given[x];
        FEW(x, C * P) second[x] += given[x] * d[x];
    }
    FEW(x, C * P) sum[D * P + x] = first[x], sum[2 * D * P + x] = second[x];
}

static void uniform(const Task *t, const Block *b, vector *scratch)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * t->children;
    const REAL tiny = IS_DOUBLE ? 2.2250738585072014e-308 : 1.17549435e-38f;
    vector *sums = scratch, u[MOST_CHILDREN * D * P], a[MOST_CHILDREN * P];
    Child child[MOST_CHILDREN];

    memset(sums, 0, J * W * U * P * sizeof(vector));
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, MOST_CHILDREN, number, 0, t->children, t, b);
        EACH(w, W) {
            EACH(k, some) {
                fetch_child(u + k * D * P, a + k * P, child + k, t, b, w);
                EACH(h, D) FEW(q, P) u[(k * D + h) * P + q] *= a[k * P + q];
                FEW(q, P) sums[(w * J * U + 3 * D) * P + q] += a[k * P + q];
            }
            EACH(j, J) EACH(r, R) add_to_mean(sums + (w * J + j) * U * P, child, u, some, j, r);
        }
    }
    EACH(w, W) EACH(j, J) FEW(q, P) {
        vector *sum = sums + (w * J + j) * U * P + q;
        sum[3 * D * P] = sums[(w * J * U + 3 * D) * P + q];
        EACH(h, D) sum[h * P] /= -larger(sum[3 * D * P], all(tiny));
    }
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, MOST_CHILDREN, number, 0, t->children, t, b);
        EACH(w, W) {
            EACH(k, some) fetch_child(u + k * D * P, a + k * P, child + k, t, b, w);
            EACH(j, J) EACH(r, R) add_about_mean(sums + (w * J + j) * U * P, child, u, a, some, j, r);
        }
    }
    put_parents(t->mean, sums, U, D, -1, t, b);
    put_parents(t->first, sums + D * P, U, D, (REAL)1 / J, t, b);
    put_parents(t->second, sums + 2 * D * P, U, D, (REAL)1 / J, t, b);
    put_parents(t->mass, sums + 3 * D * P, U, 1, (REAL)1 / J, t, b);
}

/* ---- gradients. dd lies in records (child, parent, pair), u in records (child, pair) ---- */

typedef struct {
    integer group, part, first, end; /* child types first .. end */
    REAL *grad_maps;
} Piece;

/* dA = dd u^T, summed over positions */
APART void grad_of_maps(REAL *grad_maps, const vector *dd, const vector *u, const Child *child, integer some, integer J,
                        integer W)
{
    EACH(k, some) EACH(j, J) {
        vector dA[CC];
        FEW(x, CC) dA[x] = all(0);
        EACH(w, W) EACH(r, R) FEW(q, P) {
            const vector *back = dd + (((k * J + j) * W + w) * D + r * C) * P + q;
            const vector *row = u + ((k * W + w) * D + r * C) * P + q;
            FEW(h, C) FEW(c, C) dA[h * C + c] += back[h * P] * row[c * P];
        }
        add_lanes(grad_maps + child[k].map + j * CC, dA, CC);
    }
}

enum { B = 5 * D + 2, G = 2 * D + 1 }; /* records: -m, p/2, g1, g2, 2 g2, c, g0; dm, dp, dc */

/* d, l and g of a child to all parents */
APART void logits_and_grads(vector *d, vector *l, vector *grad, const vector *parent, const REAL *maps, const vector *u,
                            integer J, integer W)
{
    for (const vector *end = parent + J * B * P; parent < end; parent += B * P, maps += CC, l += P, grad += P) {
        vector sum[P], g[P], x[C * P], scaled[C * P], slope[C * P];
        FEW(q, P) sum[q] = parent[5 * D * P + q], g[q] = parent[(5 * D + 1) * P + q];
        EACH(r, R) {
            const vector *row = parent + r * C * P;
            deviate(x, row, maps, u + r * C * P);
            FEW(h, C * P) scaled[h] = row[D * P + h] * x[h];
            FEW(h, C * P) slope[h] = row[2 * D * P + h] + row[3 * D * P + h] * x[h];
            FEW(h, C * P) sum[h % P] -= scaled[h] * x[h];
            FEW(h, C * P) g[h % P] += slope[h] * x[h];
            FEW(h, C * P) d[r * C * P + h] = x[h];
        }
        d += W * D * P;
        FEW(q, P) l[q] = sum[q];
        FEW(q, P) grad[q] = g[q];
    }
}

/* l becomes rho, g becomes dl, times `scale`: so p may keep the factor that makes l a logit to base 2; da */
APART void grads_of_logits(vector *l, vector *g, vector *da, const vector *top, const vector *left, const vector *a,
                           integer J)
{
    const REAL scale = 2 / LOG2_E;
    vector sum[P], share[P], scaled[P];
    raise(l, sum, top, g, J);
    FEW(q, P) da[q] = sum[q] *= left[q], share[q] = a[q] * left[q], scaled[q] = share[q] * scale;
    EACH(j, J) FEW(q, P) {
        vector x = l[j * P + q];
        l[j * P + q] = x * share[q];
        g[j * P + q] = (g[j * P + q] - sum[q]) * (x * scaled[q]);
    }
}

/* From d the dd of some children to a row of one parent's pose, and the parent's gradients */
APART void grad_of_parent(vector *sum, vector *back, const vector *parent, const vector *rho, const vector *dl,
                          integer some, integer J, integer W, integer r)
{
    vector dc[P], dm[C * P], dp[C * P], d[C * P], pulled[C * P], dd[C * P];
    FEW(q, P) dc[q] = all(0);
    FEW(x, C * P) dm[x] = sum[r * C * P + x], dp[x] = sum[(D + r * C) * P + x];
    parent += r * C * P, back += r * C * P;
    EACH(k, some) {
        RELOAD;
        FEW(x, C * P) d[x] = back[x];
        FEW(q, P) dc[q] += dl[q];
        FEW(x, C * P) pulled[x] = dl[x % P] * d[x];
        FEW(x, C * P) dd[x] = rho[x % P] * (parent[2 * D * P + x] + parent[4 * D * P + x] * d[x]);
        FEW(x, C * P) dp[x] += pulled[x] * d[x];
        FEW(x, C * P) dd[x] -= parent[D * P + x] * pulled[x];
        FEW(x, C * P) dm[x] += dd[x];
        FEW(x, C * P) back[x] = dd[x];
        rho += J * P, dl += J * P, back += J * W * D * P;
    }
    FEW(x, C * P) sum[r * C * P + x] = dm[x], sum[(D + r * C) * P + x] = dp[x];
    if (!r) FEW(q, P) sum[2 * D * P + q] += dc[q];
}

/* du = A^T dd, summed over parents */
APART void grad_of_pose(vector *du, const vector *dd, const REAL *maps, integer J, integer W)
{
    EACH(r, R) {
        vector row[C * P];
        FEW(x, C * P) row[x] = all(0);
        EACH(j, J) {
            const Map A = map_at(maps + j * CC);
            FEW(h, C) FEW(c, C) FEW(q, P)
                row[c * P + q] = add_scaled(row[c * P + q], &A, h * C + c, dd[(j * W * D + r * C + h) * P + q]);
        }
        FEW(x, C * P) du[r * C * P + x] = row[x];
    }
}

static void moments_backward(const Task *t, const Block *b, vector *scratch, const Piece *piece)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * (piece->end - piece->first);
    const integer numbers = t->images * positions_of(t);
    vector *parents = scratch, *sums = parents + J * W * B * P, *back = sums + J * W * G * P;
    vector *weight = back + SOME_CHILDREN * J * W * D * P, *grad = weight + SOME_CHILDREN * J * P;
    vector u[SOME_CHILDREN * MOST_WIDE * D * P], a[P], da[SOME_CHILDREN * P], top[P], left[P], du[D * P];
    Child child[SOME_CHILDREN];

    fetch_parents(parents, B, t->centre, D, -1, t, b);
    fetch_parents(parents + D * P, B, t->precision, D, LOG2_E / 2, t, b);
    fetch_parents(parents + 2 * D * P, B, t->grad_first, D, 1, t, b);
    fetch_parents(parents + 3 * D * P, B, t->grad_second, D, 1, t, b);
    fetch_parents(parents + 4 * D * P, B, t->grad_second, D, 2, t, b);
    fetch_parents(parents + 5 * D * P, B, t->logit, 1, 1, t, b);
    fetch_parents(parents + (5 * D + 1) * P, B, t->grad_mass, 1, 1, t, b);
    relative_logits(parents + 5 * D * P, B, J, W);
    memset(sums, 0, J * W * G * P * sizeof(vector));
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, SOME_CHILDREN, number, piece->first, piece->end, t, b);
        EACH(w, W) {
            EACH(k, some) {
                vector *pose = u + (k * W + w) * D * P;
                const unaligned *kept = (const unaligned *)(kept_at(t, b, w) + child[k].kept);
                FEW(q, P) top[q] = kept[q], left[q] = kept[RUN / LANES + q];
                fetch_child(pose, a, child + k, t, b, w);
                logits_and_grads(back + (k * J * W + w) * D * P, weight + k * J * P, grad + k * J * P,
                                 parents + w * J * B * P, child[k].maps, pose, J, W);
                grads_of_logits(weight + k * J * P, grad + k * J * P, da + k * P, top, left, a, J);
            }
            EACH(j, J) EACH(r, R)
                grad_of_parent(sums + (w * J + j) * G * P, back + (j * W + w) * D * P, parents + (w * J + j) * B * P,
                               weight + j * P, grad + j * P, some, J, W, r);
            EACH(k, some) {
                grad_of_pose(du, back + (k * J * W + w) * D * P, child[k].maps, J, W);
                scatter_child(du, da + k * P, child + k, t, b, w);
            }
        }
        grad_of_maps(piece->grad_maps, back, u, child, some, J, W);
    }
    put_parents(t->grad_centre + piece->part * numbers * J * D, sums, G, D, -1, t, b);
    put_parents(t->grad_precision + piece->part * numbers * J * D, sums + D * P, G, D, -LOG2_E / 4, t, b);
    put_parents(t->grad_logit + piece->part * numbers * J, sums + 2 * D * P, G, 1, LOG2_E / 2, t, b);
}

/* dd and du of a child without their factor a, and its da. Record: -m, g1, g2, g0 */
APART void grad_of_child(vector *du, vector *da, vector *dd, const vector *parents, const REAL *maps, const vector *u,
                         integer J, integer W)
{
    vector g[P];
    FEW(q, P) g[q] = da[q];
    EACH(r, R) {
        vector row[C * P];
        FEW(x, C * P) row[x] = all(0);
        EACH(j, J) {
            const vector *parent = parents + (j * U + r * C) * P;
            vector *back = dd + (j * W * D + r * C) * P;
            const Map A = map_at(maps + j * CC);
            vector d[C * P], slope[C * P], bent[C * P];
            deviate(d, parent, maps + j * CC, u + r * C * P);
            FEW(x, C * P) bent[x] = parent[2 * D * P + x] * d[x];
            FEW(x, C * P) slope[x] = parent[D * P + x] + bent[x];
            FEW(x, C * P) bent[x] += slope[x];
            FEW(x, C * P) g[x % P] += slope[x] * d[x];
            FEW(h, C) FEW(c, C) FEW(q, P)
                row[c * P + q] = add_scaled(row[c * P + q], &A, h * C + c, bent[h * P + q]);
            FEW(x, C * P) back[x] = bent[x];
        }
        FEW(x, C * P) du[r * C * P + x] = row[x];
    }
    FEW(q, P) da[q] = g[q];
}

static void uniform_backward(const Task *t, const Block *b, vector *scratch, const Piece *piece)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * (piece->end - piece->first);
    const REAL share = (REAL)1 / J;
    vector *parents = scratch, *back = parents + J * W * U * P;
    vector u[SOME_CHILDREN * MOST_WIDE * D * P], a[P], da[P], du[D * P];
    Child child[SOME_CHILDREN];

    fetch_parents(parents, U, t->mean, D, -1, t, b);
    fetch_parents(parents + D * P, U, t->grad_first, D, share, t, b);
    fetch_parents(parents + 2 * D * P, U, t->grad_second, D, share, t, b);
    fetch_parents(parents + 3 * D * P, U, t->grad_mass, 1, share, t, b);
    EACH(w, W) EACH(j, J - 1) FEW(q, P)
        parents[(w * J * U + 3 * D) * P + q] += parents[((w * J + j + 1) * U + 3 * D) * P + q];
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, SOME_CHILDREN, number, piece->first, piece->end, t, b);
        EACH(w, W) EACH(k, some) {
            vector *pose = u + (k * W + w) * D * P;
            FEW(q, P) da[q] = parents[(w * J * U + 3 * D) * P + q];
            fetch_child(pose, a, child + k, t, b, w);
            grad_of_child(du, da, back + (k * J * W + w) * D * P, parents + w * J * U * P, child[k].maps, pose, J, W);
            EACH(h, D) FEW(q, P) du[h * P + q] *= a[q], pose[h * P + q] *= a[q];
            scatter_child(du, da, child + k, t, b, w);
        }
        grad_of_maps(piece->grad_maps, back, u, child, some, J, W);
    }
}

/* ---- work: threads call one function with the same task, and each takes pieces of it until none is left ---- */

typedef void Forward(const Task *, const Block *, vector *);
typedef void Backward(const Task *, const Block *, vector *, const Piece *);
typedef struct {
    integer wide, blocks;
    vector *memory;
} Scratch;

/* Memory for `size` pairs for each pair of a block, and `besides` for all, per parent; blocks are alike, or nearly. */
static Scratch scratch_of(const Task *t, integer size, integer besides)
{
    integer pairs = (positions_of(t) + P * LANES - 1) / (P * LANES), bytes = t->parents * P * BYTES;
    integer most = smaller(MOST_WIDE, SCRATCH / (bytes * size)), blocks = (pairs + most - (most > 0)) / (most + !most);
    integer wide = (pairs + blocks - 1) / blocks;
    return (Scratch){wide, (pairs + wide - 1) / wide, aligned_alloc(BYTES, bytes * (size * wide + besides))};
}

/* A piece is a block of an image. Returns 1 where there is no memory. */
static int forward(Task *t, Forward *walk, integer size, integer besides)
{
    Scratch scratch = scratch_of(t, size, besides);
    if (!scratch.memory) return 1;
    for (integer n; (n = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->images * scratch.blocks;) {
        Block b = block_of(t, n / scratch.blocks, n % scratch.blocks, scratch.wide);
        walk(t, &b, scratch.memory);
    }
    free(scratch.memory);
    return 0;
}

/* A piece is a group of images and a part of the child types: no two write to the same place, and no sum depends on
 * who takes which. */
static int backward(Task *t, Backward *walk, integer size, integer besides)
{
    Scratch scratch = scratch_of(t, size, besides);
    if (!scratch.memory) return 1;
    for (integer n; (n = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->groups * t->parts;) {
        Piece piece = {.group = n / t->parts, .part = n % t->parts};
        integer maps = (t->shared ? 1 : places_of(t)) * t->children * t->parents * CC;
        piece.first = t->children * piece.part / t->parts;
        piece.end = t->children * (piece.part + 1) / t->parts;
        piece.grad_maps = t->grad_maps + piece.group * maps;
        integer last = t->images * (piece.group + 1) / t->groups;
        for (integer image = t->images * piece.group / t->groups; image < last; image++)
            EACH(number, scratch.blocks) {
                Block b = block_of(t, image, number, scratch.wide);
                walk(t, &b, scratch.memory, &piece);
            }
    }
    free(scratch.memory);
    return 0;
}

int quatcaps_moments(Task *t) { return forward(t, moments, 2 * F, MOST_CHILDREN * (D + 1)); }
int quatcaps_uniform(Task *t) { return forward(t, uniform, U, 0); }
int quatcaps_moments_backward(Task *t)
{
    return backward(t, moments_backward, B + G + SOME_CHILDREN * D, 2 * SOME_CHILDREN);
}
int quatcaps_uniform_backward(Task *t) { return backward(t, uniform_backward, U + SOME_CHILDREN * D, 0); }
