/* Images with channels last, and their convolutions: all products one by one, or, for 3x3 and stride 1, by tiles.
 *
 * Channels are as many as fill LONG numbers, or LANES of an input; around an image lies a border of zeros. One loop does
 * all products: of ROWS pixels with as many output channels as LONG, over runs of numbers that lie side by side. What a
 * pixel's 3x3 neighbourhood has in a row of pixels is one run. With stride 1, tiles of OUT x OUT output pixels are
 * convolved by Winograd's algorithm instead (Lavin & Gray 2016): IN x IN numbers are transformed, multiplied by the
 * transformed weights one by one, and transformed back, which takes (IN/3 OUT)^2 of the products, a quarter. The points
 * of its polynomials are 0, 1/2^(1/2), 2^(1/2), those with a minus, and infinity: with 1 and 2 errors are twice as large.
 *
 * Weights come packed: (blocks of LONG output channels, kernel rows, columns, input channels, LONG), or, transformed,
 * (blocks, IN, IN, input channels, LONG).
 */
#pragma GCC optimize("no-schedule-insns") /* which moves what is multiplied between registers, a tenth of the time */
#include <stdlib.h>
#include <string.h>

#include "vectors.h"

enum { LONG = 2 * LANES, ROWS = 8, OUT = 4, IN = OUT + 2 };

typedef struct {
    integer height, width, channels, row; /* row: numbers from one row to the next */
    REAL *pixels;                         /* the first inside the border */
} Image;

INLINE integer smaller(integer x, integer y) { return x < y ? x : y; }
INLINE integer upwards(integer x, integer unit) { return (x + unit - 1) / unit * unit; }
INLINE REAL *at(const Image *m, integer y, integer x) { return m->pixels + y * m->row + x * m->channels; }
INLINE vector load(const REAL *x) { return *(const unaligned *)x; }
INLINE void save(REAL *x, vector y) { *(unaligned *)x = y; }

/* Room for whole tiles and whole ROWS beyond the image too, all zeros. */
static Image image_of(integer height, integer width, integer channels)
{
    Image m = {height, width, channels, (upwards(width, ROWS) + 2) * channels, NULL};
    integer bytes = upwards((upwards(height, OUT) + 3) * m.row * sizeof(REAL), BYTES);
    REAL *memory = aligned_alloc(BYTES, bytes);
    if (memory) memset(memory, 0, bytes), m.pixels = memory + m.row + m.channels;
    return m;
}

static void release(Image *m)
{
    if (m->pixels) free(m->pixels - m->row - m->channels);
}

/* a w for ROWS pixels, `step` apart, each with some runs of `count` numbers, `row` apart */
APART void multiply(vector *results, const REAL *a, integer step, integer runs, integer row, const REAL *w, integer count)
{
    vector x[ROWS], sums[ROWS * 2];
    FEW(p, ROWS * 2) sums[p] = all(0);
    for (; runs--; a += row)
        for (const REAL *from = a, *end = a + count; from < end; from += LANES) {
            FEW(p, ROWS) x[p] = load(from + p * step);
            FEW(lane, LANES) {
                RELOAD; /* or all weights of this turn are loaded at once, into more registers than there are */
                const vector first = load(w), second = load(w + LANES);
                FEW(p, ROWS) sums[2 * p] += first * x[p][lane], sums[2 * p + 1] += second * x[p][lane];
                w += LONG;
            }
        }
    FEW(p, ROWS * 2) results[p] = sums[p];
}

/* out = relu(bias + conv), or, without a bias, out += conv */
INLINE void finish(REAL *out, const vector *sums, const REAL *bias)
{
    FEW(q, 2) {
        const vector before = load((bias ? bias : out) + q * LANES), y = before + sums[q];
        save(out + q * LANES, bias ? larger(y, all(0)) : y);
    }
}

/* A convolution of `side` x `side`, its products one by one. */
static void convolve(Image *out, const Image *in, const REAL *w, integer side, integer stride, const REAL *bias)
{
    const integer run = side * in->channels, pad = side / 2;
    for (integer c = 0; c < out->channels; c += LONG, w += side * run * LONG)
        EACH(y, out->height) for (integer x = 0; x < out->width; x += ROWS) {
            vector sums[ROWS * 2];
            multiply(sums, at(in, y * stride - pad, x * stride - pad), stride * in->channels, side, in->row, w, run);
            EACH(p, smaller(ROWS, out->width - x)) finish(at(out, y, x + p) + c, sums + 2 * p, bias ? bias + c : NULL);
        }
}

/* Numbers along one line of a tile, `step` apart: there and back. */
#define AT(k) d[(k) * step]
static const REAL ROOT = 1.41421356237309505, HALF_ROOT = 0.70710678118654752;

INLINE void transform(vector *d, integer step)
{
    const vector even = AT(4) - 2 * AT(2), odd = HALF_ROOT * (AT(3) - 2 * AT(1));
    const vector flat = AT(4) - (REAL)0.5 * AT(2), steep = ROOT * (AT(3) - (REAL)0.5 * AT(1));
    AT(0) = AT(0) - (REAL)2.5 * AT(2) + AT(4), AT(5) = AT(1) - (REAL)2.5 * AT(3) + AT(5);
    AT(1) = even + odd, AT(2) = even - odd, AT(3) = flat + steep, AT(4) = flat - steep;
}

INLINE void transform_back(vector *d, integer step)
{
    const vector near = AT(1) + AT(2), slope = HALF_ROOT * (AT(1) - AT(2));
    const vector far = AT(3) + AT(4), steep = ROOT * (AT(3) - AT(4));
    AT(0) = AT(0) + near + far, AT(1) = slope + steep;
    AT(2) = (REAL)0.5 * near + 2 * far, AT(3) = (REAL)0.5 * slope + 2 * steep + AT(5);
}
#undef AT

APART void transform_tile(REAL *to, integer step, const Image *in, integer y, integer x, integer c)
{
    vector d[IN * IN];
    FEW(k, IN) FEW(m, IN) d[k * IN + m] = load(at(in, y + k - 1, x + m - 1) + c);
    FEW(k, IN) transform(d + k, IN);
    FEW(k, IN) transform(d + k * IN, 1);
    FEW(k, IN * IN) save(to + k * step, d[k]);
}

APART void transform_tile_back(REAL *to, integer row, integer column, const vector *from, integer step, integer down,
                               integer across, const REAL *bias)
{
    vector d[IN * IN];
    FEW(k, IN * IN) d[k] = from[k * step];
    FEW(k, IN) transform_back(d + k, IN);
    FEW(k, OUT) transform_back(d + k * IN, 1);
    EACH(k, down) EACH(m, across) {
        REAL *out = to + k * row + m * column;
        const vector y = (bias ? load(bias) : load(out)) + d[k * IN + m];
        save(out, bias ? larger(y, all(0)) : y);
    }
}

/* A 3x3 convolution of stride 1, ROWS tiles at a time. */
static void convolve_tiles(Image *out, const Image *in, const REAL *weights, const REAL *bias, REAL *tiles)
{
    const integer C = in->channels, across = (out->width + OUT - 1) / OUT;
    const integer count = across * ((out->height + OUT - 1) / OUT);
    for (integer first = 0; first < count; first += ROWS) {
        const integer some = smaller(ROWS, count - first);
        EACH(p, some) for (integer c = 0; c < C; c += LANES)
            transform_tile(tiles + p * C + c, ROWS * C, in, (first + p) / across * OUT, (first + p) % across * OUT, c);
        const REAL *w = weights;
        for (integer c = 0; c < out->channels; c += LONG) {
            vector products[IN * IN][ROWS * 2];
            for (integer k = 0; k < IN * IN; k++, w += C * LONG)
                multiply(products[k], tiles + k * ROWS * C, C, 1, 0, w, C);
            EACH(p, some) EACH(q, 2) {
                const integer y = (first + p) / across * OUT, x = (first + p) % across * OUT;
                transform_tile_back(at(out, y, x) + c + q * LANES, out->row, out->channels, &products[0][2 * p + q],
                                    ROWS * 2, smaller(OUT, out->height - y), smaller(OUT, out->width - x),
                                    bias ? bias + c + q * LANES : NULL);
            }
        }
    }
}

/* Room for the transformed tiles of an image with that many channels; what is not written stays 0. */
static REAL *room_for_tiles(integer channels)
{
    const integer numbers = IN * IN * ROWS * channels;
    REAL *tiles = aligned_alloc(BYTES, numbers * sizeof(REAL));
    if (tiles) memset(tiles, 0, numbers * sizeof(REAL));
    return tiles;
}
