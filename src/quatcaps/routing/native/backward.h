/* The gradients of moments: of their children, and of the parents that were given. */
#include "forward.h"

/* dA = dd u^T to one parent or two, summed over positions. dd lies in records for each (child, parent, pair), u for each
 * (child, pair). */
INLINE void grad_of_some_maps(REAL *grad_maps, const vector *dd, const vector *u, integer parents, integer W)
{
    vector dA[2 * CC];
    FEW(j, parents) FEW(x, CC) dA[j * CC + x] = all(0);
    EACH(w, W) EACH(r, R) EACH(q, P) {
        const vector *back = dd + (w * D + r * C) * P + q, *row = u + (w * D + r * C) * P + q;
        FEW(j, parents) FEW(h, C) FEW(c, C) dA[j * CC + h * C + c] += back[(j * W * D + h) * P] * row[c * P];
    }
    add_lanes(grad_maps, dA, parents * CC);
}

APART void grad_of_maps(REAL *grad_maps, const vector *dd, const vector *u, const Child *child, integer some, integer J,
                        integer W)
{
    enum { SIDE_BY_SIDE = CC <= 9 ? 2 : 1 }; /* as many as registers hold */
    EACH(k, some) {
        integer j = 0;
        for (; j + SIDE_BY_SIDE <= J; j += SIDE_BY_SIDE)
            grad_of_some_maps(grad_maps + child[k].map + j * CC, dd + (k * J + j) * W * D * P, u + k * W * D * P,
                              SIDE_BY_SIDE, W);
        if (j < J)
            grad_of_some_maps(grad_maps + child[k].map + j * CC, dd + (k * J + j) * W * D * P, u + k * W * D * P, 1, W);
    }
}

/* Records: -m, p/2, g1, g2, c, g0, where g1, g2 and g0 are scaled so that p may keep the factor that makes l a logit to
 * base 2; g1 and 2 g2 as they are; dm, dp, dc. */
enum { B = 6 * D + 2, SLOPE = 4 * D + 2, G = 2 * D + 1 };
static const REAL GRAD_SCALE = 2 / (REAL)1.4426950408889634;

/* d, rho and the scaled g of a child to all parents, and the sum of r g over them, with what the forward kept of the
 * softmax: the highest logit, 1 over the sum of exponentials, and that times a. */
APART void weigh_and_grade(vector *d, vector *rho, vector *grad, vector *da, const vector *top, const vector *left,
                           const vector *share, const vector *parent, const REAL *maps, const vector *u, integer J,
                           integer W)
{
    vector sum[P], l[P], g[P], highest[P], part[P], x[C * P], scaled[C * P], slope[C * P];
    FEW(q, P) sum[q] = all(0), l[q] = all(-(REAL)__builtin_inf()), g[q] = all(0), highest[q] = top[q], part[q] = share[q];
    rho -= P;
    EACH(j, J) {
        vector before[P], grad_before[P];
        FEW(q, P) before[q] = l[q] - highest[q], grad_before[q] = g[q];
        FEW(q, P) l[q] = parent[4 * D * P + q], g[q] = parent[(4 * D + 1) * P + q];
        EACH(r, R) {
            const vector *row = parent + r * C * P;
            deviate(x, row, maps, u + r * C * P);
            FEW(h, C * P) scaled[h] = row[D * P + h] * x[h];
            FEW(h, C * P) slope[h] = row[2 * D * P + h] + row[3 * D * P + h] * x[h];
            FEW(h, C * P) l[h % P] -= scaled[h] * x[h];
            FEW(h, C * P) g[h % P] += slope[h] * x[h];
            FEW(h, C * P) d[r * C * P + h] = x[h];
        }
        FEW(q, P) grad[q] = g[q];
        FEW(q, P) before[q] = power_of_two(before[q]);
        FEW(q, P) sum[q] += before[q] * grad_before[q];
        if (j) FEW(q, P) rho[q] = before[q] * part[q];
        parent += B * P, maps += CC, rho += P, grad += P, d += W * D * P;
    }
    FEW(q, P) {
        vector last = power_of_two(l[q] - highest[q]);
        rho[q] = last * part[q];
        da[q] = (sum[q] + last * g[q]) * left[q];
    }
}

/* What a row of one parent's pose is to its children at one vector, and its gradients */
typedef struct {
    const vector *slope; /* g1 */
    vector precision[C], bend[C], by_centre[C], by_precision[C], by_logit;
} Parent;

/* From d the dd of `count` children, one after the other in memory by steps of vectors */
INLINE void grads_to_parent(Parent *parent, vector *back, const vector *rho, const vector *g, const vector *da,
                            integer count, integer J, integer W)
{
    vector dl[2], d[2 * C], pulled[2 * C], dd[2 * C];
    FEW(k, count) dl[k] = rho[k * J * P] * (g[k * J * P] - da[k * P]);
    FEW(x, count * C) d[x] = back[(x / C * J * W * D + x % C) * P];
    FEW(x, count * C) dd[x] = again(parent->slope + x % C * P, d[x]) + parent->bend[x % C] * d[x];
    FEW(x, count * C) pulled[x] = dl[x / C] * d[x];
    FEW(x, count * C) dd[x] *= rho[x / C * J * P];
    FEW(k, count) parent->by_logit += dl[k];
    FEW(x, count * C) dd[x] -= parent->precision[x % C] * pulled[x];
    FEW(x, count * C) parent->by_precision[x % C] += pulled[x] * d[x];
    FEW(x, count * C) back[(x / C * J * W * D + x % C) * P] = dd[x];
    FEW(x, count * C) parent->by_centre[x % C] += dd[x];
}

/* The gradients of one parent from some children, a vector at a time, so that its numbers stay in registers, and two
 * children at a time, so that no sum waits for another */
APART void grad_of_parent(vector *sum, vector *back, const vector *record, const vector *rho, const vector *g,
                          const vector *da, integer some, integer J, integer W, integer r)
{
    vector *by_centre = sum + r * C * P, *by_precision = by_centre + D * P;
    record += r * C * P, back += r * C * P;
    EACH(q, P) {
        Parent parent = {.slope = record + SLOPE * P + q, .by_logit = all(0)};
        FEW(h, C) parent.precision[h] = record[(D + h) * P + q], parent.bend[h] = record[(SLOPE + D + h) * P + q];
        FEW(h, C) parent.by_centre[h] = by_centre[h * P + q], parent.by_precision[h] = by_precision[h * P + q];
        integer k = 0;
        for (; k + 2 <= some; k += 2)
            grads_to_parent(&parent, back + k * J * W * D * P + q, rho + k * J * P + q, g + k * J * P + q,
                            da + k * P + q, 2, J, W);
        if (k < some)
            grads_to_parent(&parent, back + k * J * W * D * P + q, rho + k * J * P + q, g + k * J * P + q,
                            da + k * P + q, 1, J, W);
        FEW(h, C) by_centre[h * P + q] = parent.by_centre[h], by_precision[h * P + q] = parent.by_precision[h];
        if (!r) sum[2 * D * P + q] += parent.by_logit;
    }
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

APART void fetch_with_grads(vector *parents, const Task *t, const Block *b)
{
    fetch_parents(parents, B, t->centre, D, -1, t, b);
    fetch_parents(parents + D * P, B, t->precision, D, LOG2_E / 2, t, b);
    fetch_parents(parents + 2 * D * P, B, t->grad_first, D, GRAD_SCALE, t, b);
    fetch_parents(parents + 3 * D * P, B, t->grad_second, D, GRAD_SCALE, t, b);
    fetch_logits(parents + 4 * D * P, B, t, b);
    fetch_parents(parents + (4 * D + 1) * P, B, t->grad_mass, 1, GRAD_SCALE, t, b);
    fetch_parents(parents + SLOPE * P, B, t->grad_first, D, 1, t, b);
    fetch_parents(parents + (SLOPE + D) * P, B, t->grad_second, D, 2, t, b);
}

/* Where all positions compete, da comes first: it is summed over all of them. */
static void activations_backward(const Task *t, const Block *b, vector *scratch, const Piece *piece)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * (piece->end - piece->first);
    vector *parents = scratch, *weight = parents + J * W * B * P, *grad = weight + J * P, *d = grad + J * P;
    vector u[D * P], a[P], top[P], total[P], left[P], da[P];
    Child child[SOME_CHILDREN];

    fetch_with_grads(parents, t, b);
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, SOME_CHILDREN, number, piece->first, piece->end, t, b);
        if (t->coordinates) move_parents(parents, B, t->centre, child->place, t, b);
        EACH(w, W) EACH(k, some) {
            fetch_child(u, a, child + k, t, b, w);
            fetch_totals(top, total, child + k, t, b, w);
            FEW(q, P) left[q] = 1 / (total[q] * GRAD_SCALE);
            weigh_and_grade(d, weight, grad, da, top, left, left, parents + w * J * B * P, child[k].maps, u, J, 1);
            FEW(q, P) scatter(t->grad_activations + child[k].activation, da[q], b, w * P + q);
        }
    }
}

/* It comes from afar and in no order that a CPU would foresee. */
INLINE void prefetch_kept(const REAL *kept)
{
    __builtin_prefetch(kept, 0, 2);
    __builtin_prefetch(kept + RUN, 0, 2);
}

static void moments_backward(const Task *t, const Block *b, vector *scratch, const Piece *piece)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * (piece->end - piece->first);
    const integer numbers = t->images * positions_of(t);
    vector *parents = scratch, *sums = parents + J * W * B * P, *back = sums + J * W * G * P;
    vector *weight = back + SOME_CHILDREN * J * W * D * P, *grad = weight + SOME_CHILDREN * J * P;
    vector u[SOME_CHILDREN * MOST_WIDE * D * P], a[P], top[P], left[P], share[P], du[D * P];
    vector da[SOME_CHILDREN * P], added[SOME_CHILDREN * P]; /* scaled as g is; what it adds to the gradient of a */
    Child children[2][SOME_CHILDREN], *child = children[0], *next = children[1];
    integer ahead = next_children(next, SOME_CHILDREN, 0, piece->first, piece->end, t, b);

    fetch_with_grads(parents, t, b);
    memset(sums, 0, J * W * G * P * sizeof(vector));
    for (integer number = 0, some; number < count; number += some) {
        Child *const done = child;
        child = next, next = done, some = ahead;
        ahead = next_children(next, SOME_CHILDREN, number + some, piece->first, piece->end, t, b);
        if (t->coordinates) move_parents(parents, B, t->centre, child->place, t, b);
        EACH(w, W) {
            EACH(k, some) {
                vector *pose = u + (k * W + w) * D * P;
                fetch_child(pose, a, child + k, t, b, w);
                if (t->top) {
                    fetch_totals(top, left, child + k, t, b, w);
                    FEW(q, P) left[q] = 1 / left[q];
                } else {
                    const unaligned *kept = (const unaligned *)(kept_at(t, b, w) + child[k].kept);
                    FEW(q, P) top[q] = kept[q], left[q] = kept[RUN / LANES + q];
                    if (k < ahead) prefetch_kept(kept_at(t, b, w) + next[k].kept);
                }
                FEW(q, P) share[q] = a[q] * left[q];
                weigh_and_grade(back + (k * J * W + w) * D * P, weight + k * J * P, grad + k * J * P, da + k * P, top,
                                left, share, parents + w * J * B * P, child[k].maps, pose, J, W);
                FEW(q, P) added[k * P + q] = da[k * P + q] * (LOG2_E / 2);
                if (t->top) FEW(q, P) {
                    added[k * P + q] = all(0);
                    da[k * P + q] = gather(t->grad_activations + child[k].activation, b, w * P + q) * GRAD_SCALE;
                }
            }
            EACH(j, J) EACH(r, R)
                grad_of_parent(sums + (w * J + j) * G * P, back + (j * W + w) * D * P, parents + (w * J + j) * B * P,
                               weight + j * P, grad + j * P, da, some, J, W, r);
            EACH(k, some) {
                grad_of_pose(du, back + (k * J * W + w) * D * P, child[k].maps, J, W);
                scatter_child(du, added + k * P, child + k, t, b, w);
            }
        }
        grad_of_maps(piece->grad_maps, back, u, child, some, J, W);
    }
    put_parents(t->grad_centre + piece->part * numbers * J * D, sums, G, D, -1, t, b);
    put_parents(t->grad_precision + piece->part * numbers * J * D, sums + D * P, G, D, -LOG2_E / 4, t, b);
    put_parents(t->grad_logit + piece->part * numbers * J, sums + 2 * D * P, G, 1, LOG2_E / 2, t, b);
}

/* dd and du of a child without their factor a, and its da, twice, of which there is 2 g0: d (g1 + g2 d) is half of
 * d g1 + d dd. Record: -m, g1, 2 g2, g0 */
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
            vector d[C * P], pulled[C * P];
            deviate(d, parent, maps + j * CC, u + r * C * P);
            FEW(x, C * P) pulled[x] = again(parent + D * P + x, d[x]) + parent[2 * D * P + x] * d[x];
            FEW(x, C * P) g[x % P] += parent[D * P + x] * d[x];
            FEW(h, C) FEW(c, C) FEW(q, P)
                row[c * P + q] = add_scaled(row[c * P + q], &A, h * C + c, pulled[h * P + q]);
            FEW(x, C * P) g[x % P] += pulled[x] * d[x];
            FEW(x, C * P) back[x] = pulled[x];
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
    fetch_parents(parents + 2 * D * P, U, t->grad_second, D, 2 * share, t, b);
    fetch_parents(parents + 3 * D * P, U, t->grad_mass, 1, 2 * share, t, b);
    EACH(w, W) EACH(j, J - 1) FEW(q, P)
        parents[(w * J * U + 3 * D) * P + q] += parents[((w * J + j + 1) * U + 3 * D) * P + q];
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, SOME_CHILDREN, number, piece->first, piece->end, t, b);
        if (t->coordinates) move_parents(parents, U, t->mean, child->place, t, b);
        EACH(w, W) EACH(k, some) {
            vector *pose = u + (k * W + w) * D * P;
            FEW(q, P) da[q] = parents[(w * J * U + 3 * D) * P + q];
            fetch_child(pose, a, child + k, t, b, w);
            grad_of_child(du, da, back + (k * J * W + w) * D * P, parents + w * J * U * P, child[k].maps, pose, J, W);
            EACH(h, D) FEW(q, P) du[h * P + q] *= a[q], pose[h * P + q] *= a[q];
            FEW(q, P) da[q] /= 2;
            scatter_child(du, da, child + k, t, b, w);
        }
        grad_of_maps(piece->grad_maps, back, u, child, some, J, W);
    }
}
