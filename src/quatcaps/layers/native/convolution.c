/* A 3x3 convolution of stride 1 with a border of zeros, image by image, by tiles. */
#include "tiles.h"

typedef struct {
    integer images, channels, channels_out, height, width;
    const REAL *input, *weights; /* (N, channels, height, width); transformed and packed */
    REAL *output;                /* (N, channels_out, height, width) */
    integer next;                /* the next image that no thread has taken */
} Task;

/* Row by row, so that the pixels of a row stay in the nearest cache */
static void channels_last(Image *to, const REAL *from, integer channels)
{
    EACH(y, to->height) EACH(c, channels) {
        const REAL *row = from + (c * to->height + y) * to->width;
        REAL *pixel = at(to, y, 0) + c;
        for (integer x = 0; x < to->width; x++, pixel += to->channels) *pixel = row[x];
    }
}

static void channels_first(REAL *to, const Image *from, integer channels)
{
    EACH(y, from->height) EACH(c, channels) {
        REAL *row = to + (c * from->height + y) * from->width;
        const REAL *pixel = at(from, y, 0) + c;
        for (integer x = 0; x < from->width; x++, pixel += from->channels) row[x] = *pixel;
    }
}

/* Threads call this with the same task, and each takes images until none is left. Returns 1 where there is no memory. */
int quatcaps_convolution(Task *t)
{
    const integer wide_in = upwards(t->channels, LANES), wide = upwards(t->channels_out, LONG);
    const integer area = t->height * t->width;
    Image in = image_of(t->height, t->width, wide_in), out = image_of(t->height, t->width, wide);
    REAL *tiles = room_for_tiles(wide_in);
    const int failed = !in.pixels || !out.pixels || !tiles;
    if (!failed)
        for (integer n; (n = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->images;) {
            channels_last(&in, t->input + n * t->channels * area, t->channels);
            EACH(y, t->height) memset(at(&out, y, 0), 0, t->width * wide * sizeof(REAL));
            convolve_tiles(&out, &in, t->weights, NULL, tiles);
            channels_first(t->output + n * t->channels_out * area, &out, t->channels_out);
        }
    release(&in), release(&out);
    free(tiles);
    return failed;
}
