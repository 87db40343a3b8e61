// The same kernels by hand, in arrangements that by_hand.py tries: AVX-512 intrinsics.

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 16
#define ALWAYS static inline __attribute__((always_inline))
#define FETCH(p, cache) _mm_prefetch((const char *)(p), cache)
#define FIRST _MM_HINT_T0
#define SECOND _MM_HINT_T1

typedef ptrdiff_t size;

ALWAYS size least(size a, size b) { return a < b ? a : b; }
ALWAYS __mmask16 lanes_below(size n) { return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1); }

// ---------------------------------------------------------------- layer_norm

ALWAYS __m512 term(const float *x, __mmask16 some, __m512 mean, __m512 total, int squares) {
    __m512 v = _mm512_maskz_loadu_ps(some, x);
    if (!squares) return _mm512_add_ps(total, v);
    v = _mm512_maskz_sub_ps(some, v, mean);
    return _mm512_fmadd_ps(v, v, total);
}

// The sum of x, or of squared distances from the mean; what lies `ahead` bytes on is fetched.
ALWAYS float sum(const float *x, size n, float mean, int squares, size ahead) {
    __m512 m = _mm512_set1_ps(mean), t[4] = {0};
    size i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < 4; k++) {
            if (ahead) FETCH((const char *)(x + i + k * LANES) + ahead, SECOND);
            t[k] = term(x + i + k * LANES, 0xffff, m, t[k], squares);
        }
    for (; i < n; i += LANES) t[0] = term(x + i, lanes_below(n - i), m, t[0], squares);
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(t[0], t[1]), _mm512_add_ps(t[2], t[3])));
}

ALWAYS void scale(const float *x, const float *g, const float *b, float *y, float mean,
                  float inverse, size n, int stream) {
    __m512 m = _mm512_set1_ps(mean), r = _mm512_set1_ps(inverse);
    size i = 0, first = stream ? least((-(uintptr_t)y & 63) / 4, n) : 0;
    while (i < n) {
        size count = i < first ? first - i : least(n - i, LANES);
        __mmask16 some = lanes_below(count);
        __m512 v = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(some, x + i), m), r);
        v = _mm512_fmadd_ps(v, _mm512_maskz_loadu_ps(some, g + i), _mm512_maskz_loadu_ps(some, b + i));
        if (stream && count == LANES) _mm512_stream_ps(y + i, v);
        else _mm512_mask_storeu_ps(y + i, some, v);
        i += count;
        for (; i + LANES <= n; i += LANES) {  // whole vectors, at lines where they go around the cache
            v = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), m), r);
            v = _mm512_fmadd_ps(v, _mm512_loadu_ps(g + i), _mm512_loadu_ps(b + i));
            if (stream) _mm512_stream_ps(y + i, v);
            else _mm512_storeu_ps(y + i, v);
        }
    }
}

// Rows of n: `rows` at once, scaled in blocks of columns, the next ones fetched meanwhile or not.
void layer_norm(const float *x, const float *g, const float *b, float *y, size m, size n,
                float epsilon, size rows, size columns, int fetches, int stream) {
    for (size i = 0; i < m; i += rows) {
        float mean[4], inverse[4];
        for (size k = 0; k < rows; k++) {
            const float *row = x + (i + k) * n;
            mean[k] = sum(row, n, 0, 0, 0) / n;
            float squares = fetches ? sum(row, n, mean[k], 1, 4 * n * rows) : sum(row, n, mean[k], 1, 0);
            inverse[k] = 1 / sqrtf(squares / n + epsilon);
        }
        for (size j = 0; j < n; j += columns)
            for (size k = 0; k < rows; k++) {
                size at = (i + k) * n + j, count = least(columns, n - j);
                if (stream) scale(x + at, g + j, b + j, y + at, mean[k], inverse[k], count, 1);
                else scale(x + at, g + j, b + j, y + at, mean[k], inverse[k], count, 0);
            }
    }
    _mm_sfence();
}

// ---------------------------------------------------------------- transpose

ALWAYS __m512 pairs(__m512 a, __m512 b, int high) {
    __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(x, y) : _mm512_unpacklo_pd(x, y));
}

ALWAYS void tile(const float *x, size pitch, float *y, size step) {
    __m512 r[16], t[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(x + i * pitch);
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 4; k++) r[i + k] = pairs(t[i + k / 2], t[i + k / 2 + 2], k % 2);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k += 8) {
            t[i + k] = _mm512_shuffle_f32x4(r[i + k], r[i + k + 4], 0x88);
            t[i + k + 4] = _mm512_shuffle_f32x4(r[i + k], r[i + k + 4], 0xdd);
        }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
    for (int i = 0; i < 16; i++) _mm512_storeu_ps(y + i * step, r[i]);
}

// y[j, i] = x[i, j] in blocks of rows and columns; tiles at the edges lie inside and overlap.
// `reads` and `writes`: how many elements ahead lines to read and to write are fetched.
void transpose(const float *x, float *y, size m, size n, size rows, size columns, int along_writes,
               size reads, size writes) {
    for (size top = 0; top < m; top += rows)
        for (size left = 0; left < n; left += columns) {
            size bottom = least(top + rows, m), right = least(left + columns, n);
            size outer = along_writes ? right - left : bottom - top;
            size inner = along_writes ? bottom - top : right - left;
            for (size a = 0; a < outer; a += 16)
                for (size b = 0; b < inner; b += 16) {
                    size i = least(top + (along_writes ? b : a), m - 16);
                    size j = least(left + (along_writes ? a : b), n - 16);
                    if (reads)
                        for (int k = 0; k < 16; k++)
                            FETCH(x + (i + k + along_writes * reads) * n + j + !along_writes * reads, SECOND);
                    if (writes)
                        for (int k = 0; k < 16; k++)
                            __builtin_prefetch(
                                y + (j + k + !along_writes * writes) * m + i + along_writes * writes, 1, 3);
                    tile(x + i * n + j, n, y + j * m + i, m);
                }
        }
}

// ---------------------------------------------------------------- arg-maxima of columns

// One after the other: six instructions for each vector.
ALWAYS void one_by_one(const float *x, float *best, int *place, int row, size n, int R, int V) {
    __m512 a[4];
    __m512i at[4];
    for (int v = 0; v < V; v++) {
        a[v] = _mm512_loadu_ps(best + v * LANES);
        at[v] = _mm512_loadu_si512(place + v * LANES);
    }
    for (int i = 0; i < R; i++)
        for (int v = 0; v < V; v++) {
            __m512 u = _mm512_loadu_ps(x + i * n + v * LANES);
            __m512i here = _mm512_set1_epi32(row + i);
            __mmask16 stays = _mm512_cmp_ps_mask(a[v], u, _CMP_EQ_OQ);
            stays = _mm512_mask_cmplt_epi32_mask(stays, at[v], here);
            stays |= _mm512_cmp_ps_mask(a[v], u, _CMP_GT_OQ);
            a[v] = _mm512_mask_mov_ps(u, stays, a[v]);
            at[v] = _mm512_mask_mov_epi32(here, stays, at[v]);
        }
    for (int v = 0; v < V; v++) {
        _mm512_storeu_ps(best + v * LANES, a[v]);
        _mm512_storeu_si512(place + v * LANES, at[v]);
    }
}

// The best of a few rows first, then against what is known: half as many instructions.
ALWAYS void in_turn(const float *x, float *best, int *place, int row, size n, int R, int V) {
    __m512 a[4], last[4];
    __m512i at[4];
    __mmask16 unordered = 0;
    for (int v = 0; v < V; v++) {
        last[v] = a[v] = _mm512_loadu_ps(x + v * LANES);
        at[v] = _mm512_set1_epi32(row);
    }
    for (int i = 1; i < R; i++)
        for (int v = 0; v < V; v++) {
            __m512 u = _mm512_loadu_ps(x + i * n + v * LANES);
            if (i % 2) unordered |= _mm512_cmp_ps_mask(last[v], u, _CMP_UNORD_Q);
            last[v] = u;
            __mmask16 better = _mm512_cmp_ps_mask(u, a[v], _CMP_GT_OQ);
            a[v] = _mm512_max_ps(u, a[v]);
            at[v] = _mm512_mask_mov_epi32(at[v], better, _mm512_set1_epi32(row + i));
        }
    if (unordered) {
        one_by_one(x, best, place, row, n, R, V);
        return;
    }
    for (int v = 0; v < V; v++) {
        __mmask16 better = _mm512_cmp_ps_mask(a[v], _mm512_loadu_ps(best + v * LANES), _CMP_GT_OQ);
        _mm512_mask_storeu_ps(best + v * LANES, better, a[v]);
        _mm512_mask_storeu_epi32(place + v * LANES, better, at[v]);
    }
}

// R rows side by side, V vectors of each; lines `ahead` bytes on are fetched into the second cache.
#define ARGMAX(WAY, R, V) \
    void argmax_##WAY##_##R##_##V(const float *x, float *best, int *place, size m, size n, size ahead) { \
        for (size i = 0; i < n; i++) best[i] = -INFINITY, place[i] = 0; \
        for (size i = 0; i < m; i += R) \
            for (size j = 0; j < n; j += V * LANES) { \
                const float *from = x + i * n + j; \
                for (size k = 0; ahead && k < R * V; k++) \
                    FETCH((const char *)(from + k / V * n + k % V * LANES) + ahead, SECOND); \
                WAY(from, best + j, place + j, i, n, R, V); \
            } \
    }
#define ARGMAXES(R, V) ARGMAX(one_by_one, R, V) ARGMAX(in_turn, R, V)
ARGMAXES(4, 2) ARGMAXES(4, 4) ARGMAXES(8, 1) ARGMAXES(8, 2) ARGMAXES(8, 4) ARGMAXES(16, 1) ARGMAXES(16, 2)
