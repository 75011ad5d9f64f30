/* scenes — small kernels and streams that are correct or wrong, for tests/gpu/test_emulator.c. */
#ifndef MUSTER_TESTS_GPU_SCENES_H
#define MUSTER_TESTS_GPU_SCENES_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A misuse that ends the process; text: its message. */
struct misuse_scene {
	void (*run)(void);
	const char *text;
};
extern const struct misuse_scene misuse_scenes[];
extern const int misuse_scene_count;

/* Whether the results are correct this time. whole: with the synchronization that the kernel or the
 * streams need; otherwise without it. */
struct race_scene {
	const char *name;
	bool (*run)(bool whole);
	bool seen; /* also reported as a race */
};
extern const struct race_scene race_scenes[];
extern const int race_scene_count;

/* The results of ldmatrix, mma and shuffles for each lane, as arrays in host memory. */
void fragments_ldmatrix(const uint16_t rows[32][8], bool transposed, uint32_t out[32][4]);
void fragments_mma(bool bf16, const uint32_t a[32][4], const uint32_t b[32][2], float d[32][4]);
enum shuffle { SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR };
void fragments_shuffle(enum shuffle kind, int by, int width, int out[32]);

/* Adds `by` to each of `count` numbers on the device; for tests of streams and graphs. */
void scenes_add(cudaStream_t stream, float *x, int count, float by);

#ifdef __cplusplus
}
#endif

#endif
