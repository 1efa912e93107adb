/* Rotors as matrices: from an angle o and an axis a to w = (cos o, sin o a/|a|), and to the rotation R with R v = w v w*
 * or, if `right`, to w itself, which multiplies from the right; and back, for the gradients. quatcaps.quaternion has the
 * formulas. An axis of 0 stands for (1, 0, 0), and there the gradient passes through. */
#include <math.h>
#include <stdint.h>

#if IS_DOUBLE
typedef double REAL;
#define SINE sin
#define COSINE cos
#define ROOT sqrt
#define SMALLEST 2.2250738585072014e-308
#else
typedef float REAL;
#define SINE sinf
#define COSINE cosf
#define ROOT sqrtf
#define SMALLEST 1.17549435e-38f
#endif

enum { SOME = 1024 }; /* rotors that a thread takes at a time */

typedef struct {
    int64_t rotors, right;
    const REAL *angle, *axis, *grad;
    REAL *matrix, *grad_angle, *grad_axis;
    int64_t next; /* the next rotors that no thread has taken */
} Task;

typedef struct {
    REAL w, x, y, z, sine, n[3], length; /* n: the unit axis; length: that of a, or 0 */
} Rotor;

static inline REAL magnitude(REAL x) { return x < 0 ? -x : x; }

static Rotor rotor_of(REAL angle, const REAL *a)
{
    Rotor r = {.w = COSINE(angle), .sine = SINE(angle), .n = {1, 0, 0}};
    REAL size = magnitude(a[0]); /* squares of large or small numbers would not fit */
    for (int k = 1; k < 3; k++) size = magnitude(a[k]) > size ? magnitude(a[k]) : size;
    if (size >= SMALLEST) {
        for (int k = 0; k < 3; k++) r.n[k] = a[k] / size;
        const REAL length = ROOT(r.n[0] * r.n[0] + r.n[1] * r.n[1] + r.n[2] * r.n[2]);
        for (int k = 0; k < 3; k++) r.n[k] /= length;
        r.length = length * size;
    }
    r.x = r.sine * r.n[0], r.y = r.sine * r.n[1], r.z = r.sine * r.n[2];
    return r;
}

static void forward(const Task *t, int64_t k)
{
    const Rotor r = rotor_of(t->angle[k], t->axis + 3 * k);
    const REAL w = r.w, x = r.x, y = r.y, z = r.z;
    REAL *m = t->matrix + k * (t->right ? 4 : 9);
    if (t->right) {
        m[0] = w, m[1] = x, m[2] = y, m[3] = z;
        return;
    }
    m[0] = 1 - 2 * (y * y + z * z), m[1] = 2 * (x * y - w * z), m[2] = 2 * (x * z + w * y);
    m[3] = 2 * (x * y + w * z), m[4] = 1 - 2 * (x * x + z * z), m[5] = 2 * (y * z - w * x);
    m[6] = 2 * (x * z - w * y), m[7] = 2 * (y * z + w * x), m[8] = 1 - 2 * (x * x + y * y);
}

static void backward(const Task *t, int64_t k)
{
    const Rotor r = rotor_of(t->angle[k], t->axis + 3 * k);
    const REAL w = r.w, x = r.x, y = r.y, z = r.z, *g = t->grad + k * (t->right ? 4 : 9);
    REAL dw, d[3];
    if (t->right) {
        dw = g[0], d[0] = g[1], d[1] = g[2], d[2] = g[3];
    } else {
        const REAL p = g[7] - g[5], q = g[2] - g[6], s = g[3] - g[1];
        const REAL xy = g[1] + g[3], xz = g[2] + g[6], yz = g[5] + g[7];
        dw = 2 * (x * p + y * q + z * s);
        d[0] = 2 * (y * xy + z * xz + w * p - 2 * x * (g[4] + g[8]));
        d[1] = 2 * (x * xy + z * yz + w * q - 2 * y * (g[0] + g[8]));
        d[2] = 2 * (x * xz + y * yz + w * s - 2 * z * (g[0] + g[4]));
    }
    const REAL along = r.n[0] * d[0] + r.n[1] * d[1] + r.n[2] * d[2];
    t->grad_angle[k] = w * along - r.sine * dw;
    for (int c = 0; c < 3; c++)
        t->grad_axis[3 * k + c] = r.length > 0 ? r.sine * (d[c] - r.n[c] * along) / r.length : r.sine * d[c];
}

static int each(Task *t, void (*one)(const Task *, int64_t))
{
    for (int64_t k; (k = SOME * __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->rotors;)
        for (int64_t end = k + SOME < t->rotors ? k + SOME : t->rotors; k < end; k++) one(t, k);
    return 0;
}

int quatcaps_rotors(Task *t) { return each(t, forward); }
int quatcaps_rotors_backward(Task *t) { return each(t, backward); }
