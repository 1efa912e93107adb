/* What moves between tensors and vectors: blocks of parent positions, and the children that they see. */
#include <string.h>

#include "maps.h"

enum { MOST_WIDE = 4, MOST_CHILDREN = 16, SOME_CHILDREN = 8 }; /* pairs in a block; children at a time, in a backward */
enum { RUN = 32 }; /* positions side by side in what the backward keeps */
_Static_assert(RUN % (P * LANES) == 0, "a pair lies in one run");

typedef struct {
    integer images, children, parents, height, width;
    integer down, across, stride, shared, coordinates, grid_height, grid_width;
    integer groups, parts; /* a backward's work: groups of images x parts of the child types */
    const REAL *poses, *activations, *maps;
    REAL *centre, *precision, *logit, *grad_mass, *grad_first, *grad_second; /* given, or made by the M-step */
    REAL *mass, *first, *second, *mean, *kept;
    REAL *top, *total; /* (N, I, height, width), where all positions that see a child compete for it; else NULL */
    REAL *grad_poses, *grad_activations, *grad_maps, *grad_centre, *grad_precision, *grad_logit;
    const REAL *beta_u, *beta_a, *grad_activation; /* from here on, of the M-step alone */
    REAL *activation, *grad_mean, *grad_beta_u, *grad_beta_a;
    double inverse_temperature, variance_floor, contrast, mass_factor, least_mass, least_variance, damping;
    integer kind, damped, isotropic;
    const double *inverse_temperatures; /* where all iterations come in one call: of each */
    integer iterations;
    integer next; /* the next piece of work that no thread has taken */
} Task;

/* A part of the child types, first .. end, and where a group of images sums the gradient of the maps. */
typedef struct {
    integer part, first, end;
    REAL *grad_maps;
} Piece;

/* Positions first .. first + count of an image, and where the window of each begins in the children's grid. */
typedef struct {
    integer image, first, count, wide;
    integer start[MOST_WIDE * P * LANES];
    int contiguous[MOST_WIDE * P], plain[MOST_WIDE]; /* plain: both vectors of a pair, and all their lanes are positions */
} Block;

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
    EACH(w, b.wide) {
        b.plain[w] = (w + 1) * P * LANES <= b.count;
        EACH(q, P) b.plain[w] &= b.contiguous[w * P + q];
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

/* Puts numbers in their place, or adds to them: no two positions mean the same child. */
INLINE void replace(REAL *plane, vector x, const Block *b, integer v)
{
    if (b->contiguous[v]) *(unaligned *)(plane + b->start[v * LANES]) = x;
    else EACH(lane, lanes_of(b, v)) plane[b->start[v * LANES + lane]] = x[lane];
}

INLINE void scatter(REAL *plane, vector x, const Block *b, integer v)
{
    if (b->contiguous[v]) *(unaligned *)(plane + b->start[v * LANES]) += x;
    else EACH(lane, lanes_of(b, v)) plane[b->start[v * LANES + lane]] += x[lane];
}

/* Numbers of the positions of a vector, from those of the block. */
INLINE vector fetch(const REAL *values, const Block *b, integer v)
{
    vector x;
    if ((v + 1) * LANES <= b->count) return *(const unaligned *)(values + v * LANES);
    EACH(lane, LANES) x[lane] = values[smaller(v * LANES + lane, b->count - 1)];
    return x;
}

INLINE void put(REAL *values, vector x, const Block *b, integer v)
{
    if ((v + 1) * LANES <= b->count) *(unaligned *)(values + v * LANES) = x;
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

/* What the backward keeps lies as (N, runs of RUN positions, children in the window, 2, RUN); a pair is in one run. */
INLINE REAL *kept_at(const Task *t, const Block *b, integer w)
{
    integer position = b->first + w * P * LANES, runs = (positions_of(t) + RUN - 1) / RUN;
    return t->kept + (b->image * runs + position / RUN) * places_of(t) * t->children * 2 * RUN + position % RUN;
}

typedef struct {
    const REAL *maps;
    integer place, pose, activation, map, kept; /* in the window; where its numbers begin in their tensors */
} Child;

/* The next children, as many as there are up to `most`, of child types first .. end, places outermost, and of these each
 * `every`-th; if that is 1, with coordinates of one place only. */
APART integer some_children(Child *child, integer most, integer number, integer every, integer first, integer end,
                            const Task *t, const Block *b)
{
    integer types = end - first, count = smaller(most, (places_of(t) * types - number + every - 1) / every);
    if (every == 1 && t->coordinates) count = smaller(count, types - number % types);
    integer place = number / types, i = first + number % types;
    integer row = place / t->across, column = place % t->across;
    EACH(k, count) {
        const integer in_window = place * t->children + i, corner = row * t->width + column;
        const integer in_all = b->image * t->children + i;
        child[k].place = place;
        child[k].pose = in_all * D * area_of(t) + corner;
        child[k].activation = in_all * area_of(t) + corner;
        child[k].map = (t->shared ? i : in_window) * t->parents * CC;
        child[k].kept = in_window * 2 * RUN;
        child[k].maps = t->maps + child[k].map;
        for (i += every; i >= end; i -= types) {
            place++;
            if (++column == t->across) column = 0, row++;
        }
    }
    return count;
}

INLINE integer next_children(Child *child, integer most, integer number, integer first, integer end, const Task *t,
                             const Block *b)
{
    return some_children(child, most, number, 1, first, end, t, b);
}

/* Where the first position of each vector of a plain pair has the children of a plane. */
INLINE unaligned *seen_by(const REAL *plane, const Block *b, integer w, integer q)
{
    return (unaligned *)(plane + b->start[(w * P + q) * LANES]);
}

/* u and a at a pair of vectors */
INLINE void fetch_pose(vector *u, const Child *child, const Task *t, const Block *b, integer w)
{
    const REAL *plane = t->poses + child->pose;
    if (b->plain[w]) FEW(q, P) EACH(h, D) u[h * P + q] = *seen_by(plane + h * area_of(t), b, w, q);
    else FEW(q, P) EACH(h, D) u[h * P + q] = gather(plane + h * area_of(t), b, w * P + q);
}

INLINE void fetch_activation(vector *a, const Child *child, const Task *t, const Block *b, integer w)
{
    const REAL *plane = t->activations + child->activation;
    if (b->plain[w]) FEW(q, P) a[q] = *seen_by(plane, b, w, q);
    else FEW(q, P) {
        a[q] = gather(plane, b, w * P + q);
        for (integer lane = lanes_of(b, w * P + q); lane < LANES; lane++) a[q][lane] = 0;
    }
}

INLINE void fetch_child(vector *u, vector *a, const Child *child, const Task *t, const Block *b, integer w)
{
    fetch_pose(u, child, t, b, w);
    fetch_activation(a, child, t, b, w);
}

APART void scatter_child(const vector *du, const vector *da, const Child *child, const Task *t, const Block *b,
                         integer w)
{
    REAL *poses = t->grad_poses + child->pose, *activations = t->grad_activations + child->activation;
    if (b->plain[w]) FEW(q, P) {
        EACH(h, D) *seen_by(poses + h * area_of(t), b, w, q) += du[h * P + q];
        *seen_by(activations, b, w, q) += da[q];
    } else FEW(q, P) {
        EACH(h, D) scatter(poses + h * area_of(t), du[h * P + q], b, w * P + q);
        scatter(activations, da[q], b, w * P + q);
    }
}

/* d = A u - m of a row of a pose, given -m, all at a pair of vectors */
INLINE void deviate_by(vector *d, const vector *minus_m, const Map *A, const vector *u)
{
    FEW(x, C * P) d[x] = minus_m[x];
    FEW(c, C) FEW(h, C) FEW(q, P) d[h * P + q] = add_scaled(d[h * P + q], A, h * C + c, u[c * P + q]);
}

INLINE void deviate(vector *d, const vector *minus_m, const REAL *map, const vector *u)
{
    const Map A = map_at(map);
    deviate_by(d, minus_m, &A, u);
}

/* s, where a place is in the window: its row for r = 0, its column for r = 1; the number k of n, from 0, is at
 * (k + 1/2) / n, or, if coordinates = 2, at (k + 1) / 10 n, or, if they are 3, at 1/10 */
INLINE REAL place_of(integer place, integer r, const Task *t)
{
    const integer k = r ? place % t->across : place / t->across, n = r ? t->across : t->down;
    if (t->coordinates == 3) return (REAL)0.1;
    return t->coordinates == 2 ? (k + (REAL)1) / (10 * n) : (k + (REAL)0.5) / n;
}

/* -m becomes s - m: of a parent, the last numbers of its pose's first two rows */
APART void move_parents(vector *minus_m, integer step, const REAL *centre, integer place, const Task *t, const Block *b)
{
    fetch_parents(minus_m, step, centre, D, -1, t, b);
    EACH(k, b->wide * t->parents) EACH(r, 2) FEW(q, P)
        minus_m[(k * step + r * C + C - 1) * P + q] += place_of(place, r, t);
}

/* log2(e) (c - max_j c): an offset that all logits share costs no digits. Where all positions compete there is one
 * offset for an image, which the caller has taken away. */
APART void fetch_logits(vector *c, integer step, const Task *t, const Block *b)
{
    const integer J = t->parents;
    fetch_parents(c, step, t->logit, 1, 1, t, b);
    EACH(w, b->wide) FEW(q, P) {
        vector top = c[w * J * step * P + q];
        EACH(j, J) top = larger(top, c[(w * J + j) * step * P + q]);
        if (t->top) top = all(0);
        EACH(j, J) c[(w * J + j) * step * P + q] = (c[(w * J + j) * step * P + q] - top) * LOG2_E;
    }
}

/* Of a child at all positions: the largest logit and, relative to that, the sum of exponentials. */
INLINE void fetch_totals(vector *top, vector *total, const Child *child, const Task *t, const Block *b, integer w)
{
    FEW(q, P) top[q] = gather(t->top + child->activation, b, w * P + q);
    FEW(q, P) total[q] = gather(t->total + child->activation, b, w * P + q);
}

/* Adds what it has at some positions. */
APART void add_to_totals(const vector *top, const vector *total, const Child *child, const Task *t, const Block *b,
                         integer w)
{
    vector highest[P], sum[P];
    fetch_totals(highest, sum, child, t, b, w);
    FEW(q, P) {
        vector higher = larger(highest[q], top[q]);
        sum[q] = sum[q] * power_of_two(highest[q] - higher) + total[q] * power_of_two(top[q] - higher);
        replace(t->top + child->activation, higher, b, w * P + q);
        replace(t->total + child->activation, sum[q], b, w * P + q);
    }
}
