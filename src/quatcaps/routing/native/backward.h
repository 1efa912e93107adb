/* The gradients of moments: of their children, and of the parents that were given. */
#include "forward.h"

/* dA = dd u^T, summed over positions. dd lies in records for each (child, parent, pair), u for each (child, pair). */
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

/* l becomes rho, g becomes dl, times `scale`: so p may keep the factor that makes l a logit to base 2; da, which where
 * all positions compete is given and becomes 0, what is still to be added to it */
APART void grads_of_logits(vector *l, vector *g, vector *da, const vector *top, const vector *left, const vector *a,
                           integer J, int given)
{
    const REAL scale = 2 / LOG2_E;
    vector sum[P], share[P], scaled[P];
    raise(l, sum, top, g, J);
    FEW(q, P) sum[q] = given ? da[q] : sum[q] * left[q], da[q] = given ? all(0) : sum[q];
    FEW(q, P) share[q] = a[q] * left[q], scaled[q] = share[q] * scale;
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

APART void fetch_with_grads(vector *parents, const Task *t, const Block *b)
{
    fetch_parents(parents, B, t->centre, D, -1, t, b);
    fetch_parents(parents + D * P, B, t->precision, D, LOG2_E / 2, t, b);
    fetch_parents(parents + 2 * D * P, B, t->grad_first, D, 1, t, b);
    fetch_parents(parents + 3 * D * P, B, t->grad_second, D, 1, t, b);
    fetch_parents(parents + 4 * D * P, B, t->grad_second, D, 2, t, b);
    fetch_logits(parents + 5 * D * P, B, t, b);
    fetch_parents(parents + (5 * D + 1) * P, B, t->grad_mass, 1, 1, t, b);
}

/* Where all positions compete, da comes first: it is summed over all of them. */
static void activations_backward(const Task *t, const Block *b, vector *scratch, const Piece *piece)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * (piece->end - piece->first);
    vector *parents = scratch, *weight = parents + J * W * B * P, *grad = weight + J * P, *d = grad + J * P;
    vector u[D * P], a[P], top[P], total[P], da[P];
    Child child[SOME_CHILDREN];

    fetch_with_grads(parents, t, b);
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, SOME_CHILDREN, number, piece->first, piece->end, t, b);
        if (t->coordinates) move_parents(parents, B, t->centre, child->place, t, b);
        EACH(w, W) EACH(k, some) {
            fetch_child(u, a, child + k, t, b, w);
            fetch_totals(top, total, child + k, t, b, w);
            logits_and_grads(d, weight, grad, parents + w * J * B * P, child[k].maps, u, J, 1);
            raise(weight, da, top, grad, J);
            FEW(q, P) scatter(t->grad_activations + child[k].activation, da[q] / total[q], b, w * P + q);
        }
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

    fetch_with_grads(parents, t, b);
    memset(sums, 0, J * W * G * P * sizeof(vector));
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, SOME_CHILDREN, number, piece->first, piece->end, t, b);
        if (t->coordinates) move_parents(parents, B, t->centre, child->place, t, b);
        EACH(w, W) {
            EACH(k, some) {
                vector *pose = u + (k * W + w) * D * P;
                if (t->top) {
                    fetch_totals(top, left, child + k, t, b, w);
                    FEW(q, P) left[q] = 1 / left[q];
                    FEW(q, P) da[k * P + q] = gather(t->grad_activations + child[k].activation, b, w * P + q);
                } else {
                    const unaligned *kept = (const unaligned *)(kept_at(t, b, w) + child[k].kept);
                    FEW(q, P) top[q] = kept[q], left[q] = kept[RUN / LANES + q];
                }
                fetch_child(pose, a, child + k, t, b, w);
                logits_and_grads(back + (k * J * W + w) * D * P, weight + k * J * P, grad + k * J * P,
                                 parents + w * J * B * P, child[k].maps, pose, J, W);
                grads_of_logits(weight + k * J * P, grad + k * J * P, da + k * P, top, left, a, J,
                                t->top != NULL);
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
        if (t->coordinates) move_parents(parents, U, t->mean, child->place, t, b);
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
