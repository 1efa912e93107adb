/* Residual blocks without gradients: y = conv2(relu(conv1(x') + b)) + skip(x'), x' = relu(scale x + shift), where conv1
 * and b have taken in the second normalisation; image by image, so that all between x and the last y stays in the caches.
 * How an image and weights lie in memory is said in tiles.h.
 */
#include "tiles.h"

typedef struct {
    integer channels, height, width, channels_out, height_out, width_out, stride;
    const REAL *scale, *shift, *conv1, *transformed1, *bias, *conv2; /* one of conv1 and transformed1 */
    const REAL *skip; /* if there is none, x itself is added */
} Block;

typedef struct {
    integer images, count; /* of blocks */
    integer by_image, by_channel, by_row, by_column; /* how far apart these lie in the input */
    const REAL *input;
    const Block *blocks;
    REAL *output; /* (N, height, width, channels) */
    integer next; /* the next image that no thread has taken */
} Task;

/* x', and x itself where that is added to the output. Channels that lie side by side go by vectors. */
static void fetch(Image *in, Image *out, const Block *b, const REAL *from, integer by_channel, integer by_row,
                  integer by_column)
{
    const integer whole = by_channel == 1 ? b->channels / LANES * LANES : 0;
    EACH(y, b->height) EACH(x, b->width) {
        const REAL *pixel = from + y * by_row + x * by_column;
        REAL *to = at(in, y, x), *as_it_is = b->skip ? NULL : at(out, y, x);
        for (integer c = 0; c < whole; c += LANES) {
            save(to + c, larger(load(b->scale + c) * load(pixel + c) + load(b->shift + c), all(0)));
            if (as_it_is) save(as_it_is + c, load(pixel + c));
        }
        for (integer c = whole; c < b->channels; c++) {
            const REAL value = pixel[c * by_channel], moved = b->scale[c] * value + b->shift[c];
            to[c] = moved < 0 ? 0 : moved;
            if (as_it_is) as_it_is[c] = value;
        }
    }
}

/* What a block makes of an image, and room for it. */
typedef struct {
    Image in, middle, out;
} Stages;

static void through(const Block *b, Stages *s, REAL *tiles)
{
    if (b->transformed1) convolve_tiles(&s->middle, &s->in, b->transformed1, b->bias, tiles);
    else convolve(&s->middle, &s->in, b->conv1, 3, b->stride, b->bias);
    if (b->skip) {
        EACH(y, s->out.height) memset(at(&s->out, y, 0), 0, s->out.width * s->out.channels * sizeof(REAL));
        convolve(&s->out, &s->in, b->skip, 1, b->stride, NULL);
    }
    convolve_tiles(&s->out, &s->middle, b->conv2, NULL, tiles);
}

static void image_through(const Task *t, integer n, Stages *stages, REAL *tiles)
{
    fetch(&stages->in, &stages->out, t->blocks, t->input + n * t->by_image, t->by_channel, t->by_row, t->by_column);
    EACH(k, t->count) {
        const Image *before = &stages[k - !!k].out;
        if (k) fetch(&stages[k].in, &stages[k].out, t->blocks + k, before->pixels, 1, before->row, before->channels);
        through(t->blocks + k, stages + k, tiles);
    }
    const Block *last = t->blocks + t->count - 1;
    EACH(y, last->height_out) EACH(x, last->width_out) {
        const integer pixel = (n * last->height_out + y) * last->width_out + x;
        memcpy(t->output + pixel * last->channels_out, at(&stages[t->count - 1].out, y, x),
               last->channels_out * sizeof(REAL));
    }
}

int quatcaps_lanes(void) { return LANES; }

/* Threads call this with the same task, and each takes images until none is left. Returns 1 where there is no memory. */
int quatcaps_residual_blocks(Task *t)
{
    Stages *stages = calloc(t->count, sizeof(Stages));
    int failed = !stages;
    integer most = 0;
    if (!failed) EACH(k, t->count) {
        const Block *b = t->blocks + k;
        const integer wide = upwards(b->channels_out, LONG), wide_in = upwards(b->channels, LANES);
        stages[k].in = image_of(b->height, b->width, wide_in);
        stages[k].middle = image_of(b->height_out, b->width_out, wide);
        stages[k].out = image_of(b->height_out, b->width_out, wide);
        failed |= !stages[k].in.pixels || !stages[k].middle.pixels || !stages[k].out.pixels;
        most = wide > most ? wide : most, most = wide_in > most ? wide_in : most;
    }
    REAL *tiles = room_for_tiles(most);
    failed |= !tiles;
    if (!failed)
        for (integer n; (n = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->images;)
            image_through(t, n, stages, tiles);
    if (stages) EACH(k, t->count) release(&stages[k].in), release(&stages[k].middle), release(&stages[k].out);
    free(stages), free(tiles);
    return failed;
}
