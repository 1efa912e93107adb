/* EM's M-step, from moments to parents, and its gradient; letters as in quatcaps.routing.em. R is the mass, s the way
 * from the moments' centre to the mean. A record is what one parent has at a pair of vectors, of which OF takes one. */
#include <math.h>

#include "backward.h"

enum { MEAN = 0, FIRST = D, SECOND = 2 * D, MASS = 3 * D, LOGIT, SPREADS, BY_MEAN, BY_PRECISION = BY_MEAN + D,
       BY_LOGIT = BY_PRECISION + D, BY_ACTIVATION, E };
enum { LOGISTIC, NORMALIZED, STANDARDIZED };
#define OF(j, k) x[((j) * E + (k)) * P]

static const REAL LOG_TWO_PI = (REAL)1.8378770664093453;
static const REAL SMALLEST = IS_DOUBLE ? 2.2250738585072014e-308 : 1.17549435e-38f;

INLINE vector square_root(vector y)
{
    EACH(lane, LANES) y[lane] = IS_DOUBLE ? sqrt(y[lane]) : sqrtf(y[lane]);
    return y;
}

typedef struct {
    vector shift[D], spread[D], variance[D], share, log_variance; /* share: 1 / R, log_variance: summed over h */
} Gaussian;

/* spread, the variance before it is bounded, is S2/R - s^2 with s = S1/R, R no less than the least mass; or, damped,
 * (S2 - 2 s S1 + s^2 R) / (R + e) with s = (S1 - e m) / (R + e) */
INLINE Gaussian gaussian(const vector *x, const Task *t)
{
    const vector R = OF(0, MASS);
    Gaussian g = {.share = 1 / (t->damped ? R + (REAL)t->damping : larger(R, all(t->least_mass))), .log_variance = all(0)};
    EACH(h, D) {
        vector first = OF(0, FIRST + h), second = OF(0, SECOND + h);
        if (t->damped) {
            g.shift[h] = (first - (REAL)t->damping * OF(0, MEAN + h)) * g.share;
            g.spread[h] = (second - g.shift[h] * (2 * first - g.shift[h] * R)) * g.share;
        } else {
            g.shift[h] = first * g.share;
            g.spread[h] = second * g.share - g.shift[h] * g.shift[h];
        }
        g.variance[h] = larger(g.spread[h], all(0));
    }
    if (t->isotropic) {
        vector mean = all(0);
        EACH(h, D) mean += g.variance[h] / (REAL)D;
        EACH(h, D) g.variance[h] = mean;
    }
    EACH(h, D) {
        g.variance[h] += (REAL)t->variance_floor;
        g.log_variance += logarithm(g.variance[h]);
    }
    return g;
}

/* b_a - sum_h (b_u + log s_h) R, of which `tell_apart` takes l times */
INLINE vector cost(const vector *x, vector log_variance, integer j, const Task *t)
{
    return t->beta_a[j] - (D * t->beta_u[j] + log_variance / 2) * ((REAL)t->mass_factor * OF(j, MASS));
}

/* The logits of all parents, times the inverse temperature, and over the parents normalized or standardized if so
 * wished, times the contrast; what they were divided by is a magnitude and a length in units of that. */
APART void tell_apart(vector *x, vector *size, vector *length, const Task *t)
{
    const integer J = t->parents;
    vector middle = all(0), sum = all(0);
    *size = all(0), *length = all(1);
    if (t->kind == STANDARDIZED) EACH(j, J) middle += OF(j, LOGIT) / (REAL)J;
    EACH(j, J) {
        vector l = OF(j, LOGIT) = (OF(j, LOGIT) - middle) * (REAL)t->inverse_temperature;
        *size = larger(*size, larger(l, -l));
    }
    if (t->kind == LOGISTIC) return;
    if (t->kind == STANDARDIZED) *size = larger(*size, all(1));
    EACH(lane, LANES) if ((*size)[lane] < SMALLEST)(*size)[lane] = 0;
    vector unit = *size;
    EACH(lane, LANES) if (unit[lane] == 0) unit[lane] = 1;
    EACH(j, J) {
        vector scaled = OF(j, LOGIT) /= unit;
        sum += scaled * scaled;
    }
    if (t->kind == STANDARDIZED) sum = sum / (REAL)J + (REAL)t->least_variance / unit / unit;
    EACH(lane, LANES) if ((*size)[lane] == 0) sum[lane] = 1;
    *length = square_root(sum);
    EACH(j, J) OF(j, LOGIT) = (REAL)t->contrast * (OF(j, LOGIT) / *length);
}

/* BY_ACTIVATION, the gradient of the logits, becomes that of the costs; where all logits are 0 it passes through. */
APART void grad_before_contrast(vector *x, vector size, vector length, const Task *t)
{
    const integer J = t->parents;
    const REAL share = t->kind == STANDARDIZED ? (REAL)1 / J : 1;
    vector along = all(0), middle = all(0), unit = size;
    if (t->kind != LOGISTIC) {
        EACH(j, J) along += OF(j, LOGIT) / (REAL)t->contrast * OF(j, BY_ACTIVATION) * share;
        EACH(lane, LANES) if (unit[lane] == 0) unit[lane] = 1, along[lane] = 0;
        EACH(j, J) OF(j, BY_ACTIVATION) -= OF(j, LOGIT) / (REAL)t->contrast * along;
        if (t->kind == STANDARDIZED) EACH(j, J) middle += OF(j, BY_ACTIVATION) / (REAL)J;
        EACH(j, J)
            OF(j, BY_ACTIVATION) = (REAL)t->contrast * ((OF(j, BY_ACTIVATION) - middle) / length / unit);
    }
    EACH(j, J) OF(j, BY_ACTIVATION) *= (REAL)t->inverse_temperature;
}

/* the sigmoid of l and of -l, without overflow, and the logarithm of the first */
typedef struct {
    vector active, other, logarithm;
} Sigmoids;

INLINE Sigmoids sigmoids(vector l, const Task *t)
{
    const words negative = (words)(l < all(0));
    const vector e = power_of_two(choose(negative, l, -l) * LOG2_E), near = 1 / (1 + e), far = e * near;
    Sigmoids s = {choose(negative, far, near), choose(negative, near, far)};
    s.logarithm = t->damped ? logarithm(s.active + (REAL)t->damping) : choose(negative, l, all(0)) - logarithm(1 + e);
    return s;
}

static void em_step(const Task *t, const Block *b, vector *records)
{
    const integer J = t->parents;
    fetch_parents(records + MEAN * P, E, t->mean, D, 1, t, b);
    fetch_parents(records + FIRST * P, E, t->first, D, 1, t, b);
    fetch_parents(records + SECOND * P, E, t->second, D, 1, t, b);
    fetch_parents(records + MASS * P, E, t->mass, 1, 1, t, b);
    EACH(v, b->wide * P) {
        vector *x = records + v / P * J * E * P + v % P, size, length;
        EACH(j, J) {
            const Gaussian g = gaussian(x + j * E * P, t);
            OF(j, LOGIT) = cost(x, g.log_variance, j, t);
            OF(j, SPREADS) = (g.log_variance + D * LOG_TWO_PI) / 2;
            EACH(h, D) OF(j, MEAN + h) += g.shift[h], OF(j, BY_PRECISION + h) = 1 / g.variance[h];
        }
        tell_apart(x, &size, &length, t);
        EACH(j, J) {
            const Sigmoids s = sigmoids(OF(j, LOGIT), t);
            OF(j, BY_ACTIVATION) = s.active, OF(j, LOGIT) = s.logarithm - OF(j, SPREADS);
        }
    }
    put_parents(t->centre, records + MEAN * P, E, D, 1, t, b);
    put_parents(t->precision, records + BY_PRECISION * P, E, D, 1, t, b);
    put_parents(t->logit, records + LOGIT * P, E, 1, 1, t, b);
    put_parents(t->activation, records + BY_ACTIVATION * P, E, 1, 1, t, b);
}

/* Of a parent, from the gradients of what it became those of its moments, and of b_u and b_a at each position, which
 * take the places of the logit and of its gradient. */
INLINE void grad_of_moments(vector *x, const Gaussian *g, integer j, const Task *t)
{
    const vector R = OF(0, MASS), dcost = -OF(0, BY_ACTIVATION), counted = (REAL)t->mass_factor * R;
    const vector dlog_variance = (dcost * counted - OF(0, BY_LOGIT)) / 2;
    const REAL e = t->damped ? t->damping : 0;
    vector dmass = all(0), dspread[D], mean = all(0);
    EACH(h, D) {
        dspread[h] = (dlog_variance - OF(0, BY_PRECISION + h) / g->variance[h]) / g->variance[h];
        mean += dspread[h] / (REAL)D;
    }
    EACH(h, D) {
        const vector s = g->shift[h], first = OF(0, FIRST + h), second = OF(0, SECOND + h);
        const vector ds = (t->isotropic ? mean : dspread[h]);
        vector dshift = OF(0, BY_MEAN + h);
        if (t->damped) {
            dshift += 2 * ds * ((s * R - first) * g->share);
            OF(0, FIRST + h) = dshift * g->share - 2 * s * (ds * g->share);
            dmass += (ds * (s * s - g->spread[h]) - dshift * s) * g->share;
        } else {
            dshift -= 2 * s * ds;
            OF(0, FIRST + h) = dshift * g->share;
            dmass -= (ds * (second * g->share) + dshift * s) * g->share;
        }
        OF(0, BY_MEAN + h) -= e * g->share * dshift;
        OF(0, SECOND + h) = ds * g->share;
    }
    if (!t->damped) EACH(lane, LANES) if (R[lane] < (REAL)t->least_mass) dmass[lane] = 0;
    OF(0, MASS) = dmass + (REAL)t->mass_factor * dcost * (D * t->beta_u[j] + g->log_variance / 2);
    OF(0, LOGIT) = D * dcost * counted;
}

static void em_step_backward(const Task *t, const Block *b, vector *records)
{
    const integer J = t->parents;
    fetch_parents(records + MEAN * P, E, t->mean, D, 1, t, b);
    fetch_parents(records + FIRST * P, E, t->first, D, 1, t, b);
    fetch_parents(records + SECOND * P, E, t->second, D, 1, t, b);
    fetch_parents(records + MASS * P, E, t->mass, 1, 1, t, b);
    fetch_parents(records + BY_MEAN * P, E, t->grad_centre, D, 1, t, b);
    fetch_parents(records + BY_PRECISION * P, E, t->grad_precision, D, 1, t, b);
    fetch_parents(records + BY_LOGIT * P, E, t->grad_logit, 1, 1, t, b);
    fetch_parents(records + BY_ACTIVATION * P, E, t->grad_activation, 1, 1, t, b);
    EACH(v, b->wide * P) {
        vector *x = records + v / P * J * E * P + v % P, size, length;
        EACH(j, J) OF(j, LOGIT) = cost(x, gaussian(x + j * E * P, t).log_variance, j, t);
        tell_apart(x, &size, &length, t);
        EACH(j, J) {
            const Sigmoids s = sigmoids(OF(j, LOGIT), t);
            const vector slope = t->damped ? s.active / (s.active + (REAL)t->damping) : all(1);
            OF(j, BY_ACTIVATION) = s.other * (OF(j, BY_LOGIT) * slope + OF(j, BY_ACTIVATION) * s.active);
        }
        grad_before_contrast(x, size, length, t);
        EACH(j, J) {
            const Gaussian g = gaussian(x + j * E * P, t);
            grad_of_moments(x + j * E * P, &g, j, t);
        }
    }
    put_parents(t->grad_mean, records + BY_MEAN * P, E, D, 1, t, b);
    put_parents(t->grad_mass, records + MASS * P, E, 1, 1, t, b);
    put_parents(t->grad_first, records + FIRST * P, E, D, 1, t, b);
    put_parents(t->grad_second, records + SECOND * P, E, D, 1, t, b);
    put_parents(t->grad_beta_u, records + LOGIT * P, E, 1, 1, t, b);
    put_parents(t->grad_beta_a, records + BY_ACTIVATION * P, E, 1, 1, t, b);
}
