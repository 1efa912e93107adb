/* Moments of votes that are never held, and their gradients, on a CPU's vector units.
 *
 * A child i of a window has pose u and activation a; a parent j has centre m, precision p and logit c; h counts pose
 * dimensions; v = A u is a vote, or v = A u + s with coordinates, where s is the child's place in the window:
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
 * Where all positions that see a child compete for it, j counts the parents at all of them in the softmax and in da.
 * Both sums need a pass of their own, which works a part of the child types at a time: before the moments `totals`, and
 * before the gradients `activations_backward`.
 *
 * The lanes of a vector are parent positions of one image, and vectors go in pairs, which share the loads of a map. A
 * block is `wide` pairs; what belongs to its parents lies in a scratch that the nearest caches hold, as a record of
 * pairs for each (pair, parent). The children of the window pass by, some at a time, and each sum runs in registers:
 * the inner loop is over parents for a child's sums, over children for a parent's. Lanes beyond the last position
 * repeat it with activation 0.
 *
 * Tensors are contiguous: poses (N, I, D, height, width), maps (offsets, I, J, C, C), parents (N, J, D, H, W). The
 * compiler is given IS_DOUBLE, 0 for float, a pose's ROWS and COLUMNS, and M_STEP for a library that has the M-step and
 * nothing else.
 */
#include <stdlib.h>

#include "em.h"

/* Threads call one function with the same task, and each takes pieces of it until none is left. */

enum { SCRATCH = 128 * 1024 }; /* bytes that the caches of a core hold */

typedef void Forward(const Task *, const Block *, vector *);
typedef void ByChildren(const Task *, const Block *, vector *, const Piece *);
typedef struct {
    integer wide, blocks;
    vector *memory;
} Scratch;

/* Memory for `size` pairs for each pair of a block, and `besides` for all, per parent; blocks are alike, or nearly. */
static Scratch scratch_of(const Task *t, integer size, integer besides)
{
    integer pairs = (positions_of(t) + P * LANES - 1) / (P * LANES), bytes = t->parents * P * BYTES;
    integer most = smaller(MOST_WIDE, SCRATCH / (bytes * size));
    integer blocks = most > 1 ? (pairs + most - 1) / most : pairs, wide = (pairs + blocks - 1) / blocks;
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

#ifdef M_STEP
int quatcaps_em_step(Task *t) { return forward(t, em_step, E, 0); }
int quatcaps_em_step_backward(Task *t) { return forward(t, em_step_backward, E, 0); }
#else
/* All of EM routing, where no position needs to know of another: what one step leaves in its tensors, the next finds in
 * the cache. Centres are read before they are written, so they may be those that moments are about. */
static void em_routing(const Task *t, const Block *b, vector *scratch)
{
    Task step = *t;
    uniform(t, b, scratch);
    EACH(k, t->iterations) {
        if (k) moments(t, b, scratch), step.mean = t->centre;
        step.inverse_temperature = t->inverse_temperatures[k];
        em_step(&step, b, scratch);
    }
}

static void over_image(const Task *t, integer image, ByChildren *walk, const Scratch *scratch, const Piece *piece)
{
    EACH(number, scratch->blocks) {
        Block b = block_of(t, image, number, scratch->wide);
        walk(t, &b, scratch->memory, piece);
    }
}

/* Makes the gradients of a piece's children 0, to be added to: by the thread that takes it, not by one for all. */
static void clear(const Task *t, integer image, integer last, const Piece *piece)
{
    const integer types = piece->end - piece->first, of_type = t->parents * CC, number = sizeof(REAL);
    for (; image < last; image++) {
        const integer first = (image * t->children + piece->first) * area_of(t);
        memset(t->grad_poses + first * D, 0, types * D * area_of(t) * number);
        memset(t->grad_activations + first, 0, types * area_of(t) * number);
    }
    EACH(place, t->shared ? 1 : places_of(t))
        memset(piece->grad_maps + (place * t->children + piece->first) * of_type, 0, types * of_type * number);
}

/* A piece is a group of images and a part of the child types: no two write to the same place, and no sum depends on
 * who takes which. `before`, where it is given, goes over an image before `walk` does. */
static int by_children(Task *t, ByChildren *before, ByChildren *walk, integer size, integer besides)
{
    Scratch scratch = scratch_of(t, size, besides);
    if (!scratch.memory) return 1;
    for (integer n; (n = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->groups * t->parts;) {
        integer group = n / t->parts, part = n % t->parts, last = t->images * (group + 1) / t->groups;
        integer maps = (t->shared ? 1 : places_of(t)) * t->children * t->parents * CC;
        Piece piece = {part, t->children * part / t->parts, t->children * (part + 1) / t->parts,
                       t->grad_maps ? t->grad_maps + group * maps : NULL};
        if (t->grad_maps) clear(t, t->images * group / t->groups, last, &piece);
        for (integer image = t->images * group / t->groups; image < last; image++) {
            if (before) over_image(t, image, before, &scratch, &piece);
            over_image(t, image, walk, &scratch, &piece);
        }
    }
    free(scratch.memory);
    return 0;
}

int quatcaps_totals(Task *t) { return by_children(t, NULL, totals, F, D + 1); }
int quatcaps_moments(Task *t) { return forward(t, moments, 2 * F, MOST_CHILDREN * (D + 1)); }
int quatcaps_uniform(Task *t) { return forward(t, uniform, U, 0); }
int quatcaps_em_routing(Task *t) { return forward(t, em_routing, E > 2 * F ? E : 2 * F, MOST_CHILDREN * (D + 1)); }
int quatcaps_moments_backward(Task *t)
{
    ByChildren *before = t->top ? activations_backward : NULL;
    return by_children(t, before, moments_backward, B + G + SOME_CHILDREN * D, 2 * SOME_CHILDREN);
}
int quatcaps_uniform_backward(Task *t) { return by_children(t, NULL, uniform_backward, U + SOME_CHILDREN * D, 0); }
#endif
