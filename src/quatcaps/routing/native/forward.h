/* The moments of votes: under given parents, and under uniform assignments. */
#include "blocks.h"

/* ---- moments under given parents. Records: -m, p/2, c; S1, S2, S0 ---- */

enum { F = 2 * D + 1 };
static const REAL LEAST_TOTAL = IS_DOUBLE ? 0x1p-512 : 0x1p-64; /* of exponentials, that they keep their digits */

/* d and l of a child to one parent; and beside it, where they are given, steps towards some powers */
INLINE void logit(vector *d, vector *l, Power *power, const vector *parent, const REAL *map, const vector *u)
{
    const Map A = map_at(map);
    const int beside = power && R == 1;
    EACH(r, R) {
        vector x[C * P], scaled[C * P];
        FEW(h, C * P) x[h] = parent[r * C * P + h];
        FEW(c, C) {
            FEW(h, C) FEW(q, P) x[h * P + q] = add_scaled(x[h * P + q], &A, h * C + c, u[(r * C + c) * P + q]);
            if (beside) FEW(q, P) step_to_power(power + q, c);
        }
        if (!r) FEW(q, P) l[q] = parent[2 * D * P + q];
        FEW(h, C * P) scaled[h] = parent[(D + r * C) * P + h] * x[h];
        FEW(h, C * P) l[h % P] -= scaled[h] * x[h];
        FEW(h, C * P) d[r * C * P + h] = x[h];
    }
    if (power) FEW(k, DEGREE) if (!beside || k >= C) FEW(q, P) step_to_power(power + q, k);
}

/* to all parents, and the maximum of l */
APART void logits(vector *d, vector *l, vector *top, const vector *parent, const REAL *maps, const vector *u, integer J)
{
    vector highest[P];
    FEW(q, P) highest[q] = all(-(REAL)__builtin_inf());
    for (const vector *end = parent + J * F * P; parent < end; parent += F * P, maps += CC, d += D * P, l += P) {
        vector sum[P];
        logit(d, sum, NULL, parent, maps, u);
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

/* d of a child to all parents, 2^l, and the sum of these over the parents. c <= 0, so l is too, and its maximum need
 * not be known; where it is far below 0, `weigh_far` does it again. The exponential of one parent comes with the
 * deviations of the next, or the vector units would wait for it. */
INLINE void weigh_and_find(vector *d, vector *weight, vector *total, vector *highest, const vector *parent,
                           const REAL *maps, const vector *u, integer J)
{
    vector sum[P], l[P], top[P];
    FEW(q, P) sum[q] = all(0), l[q] = top[q] = all(-(REAL)__builtin_inf());
    weight -= P;
    EACH(j, J) {
        vector e[P];
        Power power[P];
        if (highest) FEW(q, P) top[q] = larger(top[q], l[q]);
        FEW(q, P) power[q] = power_begun(l[q]);
        logit(d, l, power, parent, maps, u);
        FEW(q, P) e[q] = power_done(power + q);
        if (j) FEW(q, P) weight[q] = e[q];
        FEW(q, P) sum[q] += e[q];
        parent += F * P, maps += CC, weight += P, d += D * P;
    }
    FEW(q, P) weight[q] = power_of_two(l[q]), total[q] = sum[q] + weight[q];
    if (highest) FEW(q, P) highest[q] = larger(top[q], l[q]);
}

APART void weigh(vector *d, vector *weight, vector *total, const vector *parents, const REAL *maps, const vector *u,
                 integer J)
{
    weigh_and_find(d, weight, total, NULL, parents, maps, u, J);
}

/* and the maximum of l, which a backward wants: so that the share of a parent that has no rival is exactly 1 */
APART void weigh_to_keep(vector *d, vector *weight, vector *total, vector *highest, const vector *parents,
                         const REAL *maps, const vector *u, integer J)
{
    weigh_and_find(d, weight, total, highest, parents, maps, u, J);
}

/* The same where 2^l would be 0 for all parents, or next to it: there relative to the maximum of l. Elsewhere `top`
 * becomes 0, and the numbers stay what they were, whatever is in the other lanes. */
APART void weigh_far(vector *d, vector *weight, vector *total, vector *top, const vector *parents, const REAL *maps,
                     const vector *u, integer J)
{
    const vector few = all(LEAST_TOTAL);
    vector before[P];
    words far[P];
    FEW(q, P) before[q] = total[q], far[q] = (words)(total[q] < few);
    logits(d, weight, top, parents, maps, u, J);
    FEW(q, P) top[q] = choose(far[q], top[q], all(0));
    exponentials(weight, total, top, J); /* adds in another order */
    FEW(q, P) total[q] = choose(far[q], total[q], before[q]);
}

INLINE int any_far(const vector *total)
{
    vector least = total[0];
    FEW(q, P) least = -larger(-least, -total[q]);
    return !(least_lane(least) >= LEAST_TOTAL);
}

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

APART void fetch_gaussians(vector *parents, const Task *t, const Block *b)
{
    fetch_parents(parents, F, t->centre, D, -1, t, b);
    fetch_parents(parents + D * P, F, t->precision, D, LOG2_E / 2, t, b);
    fetch_logits(parents + 2 * D * P, F, t, b);
}

/* Where all positions compete, the totals of a part of the child types come first. */
static void totals(const Task *t, const Block *b, vector *scratch, const Piece *piece)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * (piece->end - piece->first);
    vector *parents = scratch, *weight = parents + J * W * F * P, *d = weight + J * P;
    vector u[D * P], a[P], top[P], total[P];
    Child child[MOST_CHILDREN];

    fetch_gaussians(parents, t, b);
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, MOST_CHILDREN, number, piece->first, piece->end, t, b);
        if (t->coordinates) move_parents(parents, F, t->centre, child->place, t, b);
        EACH(w, W) EACH(k, some) {
            fetch_child(u, a, child + k, t, b, w);
            logits(d, weight, top, parents + w * J * F * P, child[k].maps, u, J);
            exponentials(weight, total, top, J);
            add_to_totals(top, total, child + k, t, b, w);
        }
    }
}

static void moments(const Task *t, const Block *b, vector *scratch)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * t->children;
    vector *parents = scratch, *sums = parents + J * W * F * P, *weight = sums + J * W * F * P;
    vector *d = weight + MOST_CHILDREN * J * P, u[D * P], a[MOST_CHILDREN * P], top[MOST_CHILDREN * P];
    vector total[MOST_CHILDREN * P], highest[MOST_CHILDREN * P], left[P];
    Child child[MOST_CHILDREN];

    fetch_gaussians(parents, t, b);
    memset(sums, 0, J * W * F * P * sizeof(vector));
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, MOST_CHILDREN, number, 0, t->children, t, b);
        if (t->coordinates) move_parents(parents, F, t->centre, child->place, t, b);
        EACH(w, W) {
            const vector *seen = parents + w * J * F * P;
            EACH(k, some) {
                vector *to = d + k * J * D * P, *by = weight + k * J * P;
                fetch_child(u, a + k * P, child + k, t, b, w);
                FEW(q, P) top[k * P + q] = all(0);
                if (t->top) {
                    logits(to, by, left, seen, child[k].maps, u, J);
                    fetch_totals(top + k * P, total + k * P, child + k, t, b, w);
                    exponentials(by, left, top + k * P, J);
                } else if (t->kept) {
                    weigh_to_keep(to, by, total + k * P, highest + k * P, seen, child[k].maps, u, J);
                } else {
                    weigh(to, by, total + k * P, seen, child[k].maps, u, J);
                }
            }
            EACH(k, some) {
                if (!t->top && any_far(total + k * P)) {
                    fetch_pose(u, child + k, t, b, w);
                    weigh_far(d + k * J * D * P, weight + k * J * P, total + k * P, top + k * P, seen, child[k].maps, u,
                              J);
                }
                FEW(q, P) left[q] = 1 / total[k * P + q], a[k * P + q] *= left[q];
                if (t->kept) FEW(q, P) {
                    unaligned *kept = (unaligned *)(kept_at(t, b, w) + child[k].kept) + q;
                    kept[0] = highest[k * P + q];
                    kept[RUN / LANES] = power_of_two(highest[k * P + q] - top[k * P + q]) / total[k * P + q];
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

/* ---- moments under uniform assignments. Record: the centre, S1, S2, S0 ----
 * A centre first, then the sums about it: so a variance far below the mean's square keeps its digits. The mean of some
 * children will do: if they carry a share f of the weight, the variance loses a factor 1/f in precision at most. */

enum { U = 3 * D + 1 };
/* Every seventh child; all of them where these carry less than 1/64, or where a window holds few. */
enum { EVERY = 7, LEAST_SHARE = 64, FEW_CHILDREN = 16 * EVERY };

APART void add_to_mean(vector *sum, const Child *child, const vector *au, integer some, integer j, integer r)
{
    vector total[C * P];
    FEW(x, C * P) total[x] = sum[r * C * P + x];
    EACH(k, some) {
        deviate(total, total, child[k].maps + j * CC, au + (k * D + r * C) * P);
    }
    FEW(x, C * P) sum[r * C * P + x] = total[x];
}

/* The maps of the children follow each other, and the next one is loaded ahead. */
APART void add_about_mean(vector *sum, const Child *child, const vector *u, const vector *a, integer some, integer j,
                          integer r, integer J)
{
    const REAL *maps = child->maps + j * CC;
    Map A = map_at(maps);
    vector first[C * P], second[C * P], d[C * P], given[C * P];
    sum += r * C * P;
    FEW(x, C * P) first[x] = sum[D * P + x], second[x] = sum[2 * D * P + x];
    EACH(k, some) {
        RELOAD;
        deviate_by(d, sum, &A, u + (k * D + r * C) * P);
        if (k + 1 < some) maps += J * CC;
        A = map_at(maps);
        FEW(x, C * P) given[x] = a[k * P + x % P] * d[x];
        FEW(x, C * P) first[x] += given[x];
        FEW(x, C * P) second[x] += given[x] * d[x];
    }
    FEW(x, C * P) sum[D * P + x] = first[x], sum[2 * D * P + x] = second[x];
}

/* The sum of a v over every so many children, from the first on, and those children's activations beside all. Child
 * types are hardly a multiple of EVERY, so all of them have their turn. */
APART void weigh_votes(vector *sums, vector *chosen, vector *total, integer every, const Task *t, const Block *b)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * t->children;
    vector u[MOST_CHILDREN * D * P], a[P], placed[MOST_WIDE * 2 * P] = {0};
    Child child[MOST_CHILDREN];

    EACH(x, W * P) chosen[x] = total[x] = all(0);
    for (integer number = 0, some; number < count; number += some) {
        some = next_children(child, MOST_CHILDREN, number, 0, t->children, t, b);
        EACH(w, W) EACH(k, some) {
            fetch_activation(a, child + k, t, b, w);
            FEW(q, P) total[w * P + q] += a[q];
        }
    }
    for (integer number = 0, some; number < count; number += some * every) {
        some = some_children(child, MOST_CHILDREN, number, every, 0, t->children, t, b);
        EACH(w, W) {
            EACH(k, some) {
                vector *au = u + k * D * P;
                fetch_child(au, a, child + k, t, b, w);
                FEW(q, P) chosen[w * P + q] += a[q];
                EACH(h, D) FEW(q, P) au[h * P + q] *= a[q];
                if (t->coordinates) EACH(r, 2) FEW(q, P)
                    placed[(w * 2 + r) * P + q] += a[q] * place_of(child[k].place, r, t);
            }
            EACH(j, J) EACH(r, R) add_to_mean(sums + (w * J + j) * U * P, child, u, some, j, r);
        }
    }
    if (t->coordinates) EACH(w, W) EACH(j, J) EACH(r, 2) FEW(q, P)
        sums[((w * J + j) * U + r * C + C - 1) * P + q] += placed[(w * 2 + r) * P + q];
}

/* Lane by lane, so that what one position gets does not depend on which others are in its block */
APART void weigh_all_where_light(vector *sums, vector *chosen, const vector *total, const Task *t, const Block *b)
{
    const integer J = t->parents;
    vector every[MOST_WIDE * P], again[MOST_WIDE * P];
    int light = 0;
    EACH(x, b->wide * P) EACH(lane, LANES) light |= chosen[x][lane] * LEAST_SHARE < total[x][lane];
    if (!light) return;
    weigh_votes(sums + D * P, every, again, 1, t, b);
    EACH(w, b->wide) FEW(q, P) {
        const vector before = chosen[w * P + q], whole = total[w * P + q];
        EACH(lane, LANES) if (before[lane] * LEAST_SHARE < whole[lane]) {
            EACH(j, J) EACH(h, D) {
                vector *sum = sums + ((w * J + j) * U + h) * P + q;
                sum[0][lane] = sum[D * P][lane];
            }
            chosen[w * P + q][lane] = whole[lane];
        }
        EACH(j, J) EACH(h, D) sums[((w * J + j) * U + D + h) * P + q] = all(0);
    }
}

static void uniform(const Task *t, const Block *b, vector *scratch)
{
    const integer J = t->parents, W = b->wide, count = places_of(t) * t->children;
    const REAL tiny = IS_DOUBLE ? 2.2250738585072014e-308 : 1.17549435e-38f;
    vector *sums = scratch, u[MOST_CHILDREN * D * P], a[MOST_CHILDREN * P];
    vector chosen[MOST_WIDE * P], total[MOST_WIDE * P];
    Child child[MOST_CHILDREN];

    memset(sums, 0, J * W * U * P * sizeof(vector));
    weigh_votes(sums, chosen, total, count < FEW_CHILDREN ? 1 : EVERY, t, b);
    weigh_all_where_light(sums, chosen, total, t, b);
    EACH(w, W) EACH(j, J) FEW(q, P) {
        vector *sum = sums + (w * J + j) * U * P + q;
        sum[3 * D * P] = total[w * P + q];
        EACH(h, D) sum[h * P] /= -larger(chosen[w * P + q], all(tiny));
    }
    put_parents(t->mean, sums, U, D, -1, t, b);
    for (integer number = 0, some; number < count; number += some) {
        const integer alike = t->shared ? t->children - number % t->children : count; /* whose maps follow each other */
        some = next_children(child, smaller(MOST_CHILDREN, alike), number, 0, t->children, t, b);
        if (t->coordinates) move_parents(sums, U, t->mean, child->place, t, b);
        EACH(w, W) {
            EACH(k, some) fetch_child(u + k * D * P, a + k * P, child + k, t, b, w);
            EACH(j, J) EACH(r, R) add_about_mean(sums + (w * J + j) * U * P, child, u, a, some, j, r, J);
        }
    }
    put_parents(t->first, sums + D * P, U, D, (REAL)1 / J, t, b);
    put_parents(t->second, sums + 2 * D * P, U, D, (REAL)1 / J, t, b);
    put_parents(t->mass, sums + 3 * D * P, U, 1, (REAL)1 / J, t, b);
}
