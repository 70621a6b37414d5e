/* The checksum of the table's first line (FIPS 180-4). */
#include "sha256.h"

#include <stdbool.h>
#include <string.h>

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
}

/* One round; who is who moves on by one from each to the next, so that nothing has to be moved. */
#define STEP(a, b, c, d, e, f, g, h, i)                                                                          \
    do {                                                                                                         \
        uint32_t one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + (g ^ (e & (f ^ g))) + ROUND[i] + words[i]; \
        d += one;                                                                                                \
        h = one + (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) | (c & (a | b)));                          \
    } while (0)

static void mix_plainly(uint32_t state[8], const unsigned char *block, size_t count) {
    for (; count; count--, block += 64) {
        uint32_t words[64];
        for (int i = 0; i < 16; i++)
            words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                       (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
        for (int i = 16; i < 64; i++) {
            uint32_t x = words[i - 15], y = words[i - 2];
            words[i] = words[i - 16] + words[i - 7] + (turn(x, 7) ^ turn(x, 18) ^ x >> 3) +
                       (turn(y, 17) ^ turn(y, 19) ^ y >> 10);
        }
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
                 h = state[7];
        for (int i = 0; i < 64; i += 8) {
            STEP(a, b, c, d, e, f, g, h, i);
            STEP(h, a, b, c, d, e, f, g, i + 1);
            STEP(g, h, a, b, c, d, e, f, i + 2);
            STEP(f, g, h, a, b, c, d, e, i + 3);
            STEP(e, f, g, h, a, b, c, d, i + 4);
            STEP(d, e, f, g, h, a, b, c, i + 5);
            STEP(c, d, e, f, g, h, a, b, i + 6);
            STEP(b, c, d, e, f, g, h, a, i + 7);
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g,
            state[7] += h;
    }
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

static bool has_instructions(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_SHA;
}

/* The processor's own rounds, two at a time; the state lies in two registers as they want it, the words in four. */
__attribute__((target("sha,ssse3,sse4.1"))) static void mix_by_instructions(uint32_t state[8],
                                                                            const unsigned char *block, size_t count) {
    const __m128i big = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
    __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
    for (; count; count--, block += 64) {
        __m128i words[4], first = abef, second = cdgh;
        for (int i = 0; i < 4; i++)
            words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(block + 16 * i)), big);
        for (int i = 0; i < 16; i++) {
            __m128i now = words[i & 3], next = words[(i + 1) & 3], third = words[(i + 2) & 3],
                    last = words[(i + 3) & 3];
            __m128i with = _mm_add_epi32(now, _mm_loadu_si128((const __m128i *)(const void *)(ROUND + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, with);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(with, 0x0e));
            now = _mm_add_epi32(_mm_sha256msg1_epu32(now, next), _mm_alignr_epi8(last, third, 4));
            words[i & 3] = _mm_sha256msg2_epu32(now, last);
        }
        abef = _mm_add_epi32(abef, first);
        cdgh = _mm_add_epi32(cdgh, second);
    }
    uint32_t left[4], right[4];
    _mm_storeu_si128((__m128i *)(void *)left, abef);
    _mm_storeu_si128((__m128i *)(void *)right, cdgh);
    state[0] = left[3], state[1] = left[2], state[4] = left[1], state[5] = left[0];
    state[2] = right[3], state[3] = right[2], state[6] = right[1], state[7] = right[0];
}
#else
static bool has_instructions(void) {
    return false;
}

static void mix_by_instructions(uint32_t state[8], const unsigned char *block, size_t count) {
    mix_plainly(state, block, count);
}
#endif

static void sum_up(const void *from, size_t size, unsigned char sum[32], bool quickly) {
    uint32_t state[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    void (*mix)(uint32_t *, const unsigned char *, size_t) = quickly ? mix_by_instructions : mix_plainly;
    const unsigned char *at = from;
    size_t left = size % 64;
    mix(state, at, size / 64);
    at += size - left;
    unsigned char last[128] = {0};
    if (left) memcpy(last, at, left);
    last[left] = 0x80;
    size_t end = left < 56 ? 64 : 128;
    for (int each = 0; each < 8; each++)
        last[end - 1 - (size_t)each] = (unsigned char)((uint64_t)size * 8 >> (8 * each));
    mix(state, last, end / 64);
    for (int each = 0; each < 32; each++) sum[each] = (unsigned char)(state[each / 4] >> (24 - 8 * (each % 4)));
}

void sha256(const void *from, size_t size, unsigned char sum[32]) {
    sum_up(from, size, sum, has_instructions());
}

void sha256_plainly(const void *from, size_t size, unsigned char sum[32]) {
    sum_up(from, size, sum, false);
}
