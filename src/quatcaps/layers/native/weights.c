/* Weights of 3x3 convolutions for tiles: G w G^T of Winograd's F(4x4, 3x3), packed as tiles.h says. In double, as the
 * numbers of G are not exact, and a weight is used for all pixels. */
#include "tiles.h"

typedef struct {
    integer outputs, inputs, wide; /* wide: inputs, and zeros after them */
    const REAL *weight;            /* (outputs, inputs, 3, 3) */
    REAL *packed;                  /* (blocks of LONG outputs, IN, IN, wide, LONG) */
    integer next;                  /* the next block that no thread has taken */
} Task;

/* G by lines: 1, x, x^2 over a divisor for each point x, and the last power for the point at infinity */
#define ROOT_2 1.41421356237309504880
static const double G[IN][3] = {{1, 0, 0},
                                {-2. / 3, -ROOT_2 / 3, -1. / 3},
                                {-2. / 3, ROOT_2 / 3, -1. / 3},
                                {1. / 6, ROOT_2 / 6, 1. / 3},
                                {1. / 6, -ROOT_2 / 6, 1. / 3},
                                {0, 0, 1}};

typedef double Lanes[LONG];

/* LONG outputs of one input; `to` has them `step` apart by places of a tile */
APART void transform_weights(REAL *to, integer step, const Lanes *w)
{
    Lanes half[IN][3];
    FEW(k, IN) FEW(c, 3) EACH(lane, LONG)
        half[k][c][lane] = G[k][0] * w[c][lane] + G[k][1] * w[3 + c][lane] + G[k][2] * w[6 + c][lane];
    FEW(k, IN) FEW(m, IN) EACH(lane, LONG)
        to[(k * IN + m) * step + lane] =
            (REAL)(G[m][0] * half[k][0][lane] + G[m][1] * half[k][1][lane] + G[m][2] * half[k][2][lane]);
}

static void lay_out(const Task *t, integer block)
{
    const integer count = smaller(LONG, t->outputs - block * LONG);
    REAL *to = t->packed + block * IN * IN * t->wide * LONG;
    Lanes w[9] = {0};
    EACH(i, t->inputs) {
        EACH(lane, count) FEW(k, 9) w[k][lane] = t->weight[((block * LONG + lane) * t->inputs + i) * 9 + k];
        transform_weights(to + i * LONG, t->wide * LONG, (const Lanes *)w);
    }
    EACH(k, IN * IN) memset(to + (k * t->wide + t->inputs) * LONG, 0, (t->wide - t->inputs) * LONG * sizeof(REAL));
}

/* Threads call this with the same task, and each takes blocks until none is left. */
int quatcaps_weights(Task *t)
{
    for (integer n; (n = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < (t->outputs + LONG - 1) / LONG;)
        lay_out(t, n);
    return 0;
}
