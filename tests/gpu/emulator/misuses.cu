/* Kernels and launches whose behaviour CUDA does not define. */
#include "tests/gpu/emulator/scenes.cuh"

enum { THREADS = 64 };

/* Runs a kernel over 64 threads and 1024 bytes of shared memory and waits for it. */
template <class... P, class... A> static void run(void (*kernel)(P...), A... args)
{
	start(nullptr, kernel, 2, THREADS, 1024, args...);
	cudaDeviceSynchronize();
}

/* --- Barriers --- */

static __global__ void half_waits()
{
	if (threadIdx.x < 32)
		__syncthreads();
}

static __global__ void one_returns()
{
	if (threadIdx.x == 17)
		return;
	__syncthreads();
}

static __global__ void two_barriers()
{
	if (threadIdx.x % 2)
		__syncthreads();
	else
		__syncthreads();
}

/* --- Meetings of lanes -------------------------------------------------------------------- */

static __global__ void lane_is_gone()
{
	if (threadIdx.x != 40)
		__shfl_xor_sync(0xffffffff, 1, 1);
}

static __global__ void other_mask()
{
	__syncwarp(threadIdx.x == 3 ? 0x8u : threadIdx.x == 4 ? 0x7fffffffu : 0xffffffffu);
}

static __global__ void not_in_mask()
{
	__ballot_sync(0xffff, 1);
}

static __global__ void from_outside()
{
	if (threadIdx.x < 16)
		__shfl_sync(0xffff, 1, 20);
}

/* --- Memory ------------------------------------------------------------------------------- */

static __global__ void writes_at(char *at, long offset)
{
	at[offset + threadIdx.x] = 1;
}

static __global__ void writes_shared(int offset)
{
	char *x = dynamic_shared<char>();
	x[offset] = 1;
}

static __global__ void copies_askew(const char *from)
{
	cp_async16_zfill(dynamic_shared<char>(), from + 8, true);
}

static __global__ void reads_four(float *out, const float *in)
{
	*(float4 *)out = *(const float4 *)in;
}

static __global__ void leaves_its_array(int i, float *out)
{
	__shared__ float x[THREADS];
	x[threadIdx.x] = 1;
	__syncthreads();
	out[threadIdx.x] = x[i + (int)threadIdx.x];
}

static __global__ void recurses_on_stack()
{
	char much[256 << 10];
	volatile char *at = much;
	for (int i = 0; i < 256 << 10; i += 1024)
		at[(256 << 10) - 1 - i] = 1;
}

static void reads_host()
{
	float x[4] = { 0 }, *y;
	cudaMalloc((void **)&y, 100);
	start(nullptr, reads_four, 1, 1, 0, y, (const float *)x);
	cudaDeviceSynchronize();
}

static void reads_unaligned()
{
	float *y;
	cudaMalloc((void **)&y, 100);
	start(nullptr, reads_four, 1, 1, 0, y, (const float *)y + 1);
	cudaDeviceSynchronize();
}

static void out_of_array()
{
	float *y;
	cudaMalloc((void **)&y, THREADS * sizeof *y);
	start(nullptr, leaves_its_array, 1, THREADS, 0, 1, y);
	cudaDeviceSynchronize();
}

static void shared_behind()
{
	run(writes_shared, 1024);
}
static void shared_before()
{
	run(writes_shared, -3);
}
static void much_stack()
{
	run(recurses_on_stack);
}

/* 1000 bytes, followed by the bytes that align their start. */
static void shared_soon_behind()
{
	start(nullptr, writes_shared, 1, 1, 1000, 1003);
	cudaDeviceSynchronize();
}

static void freed()
{
	char *x;
	cudaMalloc((void **)&x, 100);
	cudaFree(x);
	run(writes_at, x, 0L);
}

static void far_behind()
{
	char *x;
	cudaMalloc((void **)&x, 4096);
	run(writes_at, x, 4096L);
}

static void null()
{
	run(writes_at, (char *)nullptr, 0L);
}

static void askew()
{
	char *x;
	cudaMalloc((void **)&x, 100);
	run(copies_askew, (const char *)x);
}

static void guarded()
{
	volatile char *x;
	setenv("MUSTER_EMULATE_GUARD", "1", 1);
	cudaMalloc((void **)&x, 100);
	run(writes_at, (char *)x, 0L);
	x[0] = 1;
}

/* --- Launches ----------------------------------------------------------------------------- */

static __global__ void nothing()
{
}

static void no_blocks()
{
	start(nullptr, nothing, 0, 1, 0);
}
static void long_grid()
{
	start(nullptr, nothing, dim3(1, 65536), 1, 0);
}
static void large_block()
{
	start(nullptr, nothing, 1, 1025, 0);
}
static void much_shared()
{
	start(nullptr, nothing, 1, 1, (48 << 10) + 1);
}

static void still_more_shared()
{
	if (cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) ==
		    cudaErrorInvalidValue &&
	    cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10) ==
		    cudaSuccess)
		start(nullptr, nothing, 1, 1, (227 << 10) + 1);
}

static void early_end()
{
	cudaStream_t s;
	cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
	start(s, nothing, 1, 1, 0);
	cudaStreamDestroy(s);
}

static void copy_of_freed()
{
	float x, *y;
	cudaMalloc((void **)&y, sizeof *y);
	cudaFree(y);
	cudaMemcpyAsync(&x, y, sizeof x, cudaMemcpyDeviceToHost, nullptr);
}

static void copy_of_other_kind()
{
	float x = 0, *y;
	cudaMalloc((void **)&y, sizeof *y);
	cudaMemcpyAsync(y, &x, sizeof x, cudaMemcpyDeviceToHost, nullptr);
}

extern "C" const struct misuse_scene misuse_scenes[] = {
	{ [] { run(half_waits); }, "__syncthreads, but thread 32 has returned" },
	{ [] { run(one_returns); }, "__syncthreads, but thread 17 has returned" },
	{ [] { run(two_barriers); }, "__syncthreads, but thread" },
	{ [] { run(lane_is_gone); }, "a shuffle of mask ffffffff, but lane 8 has returned" },
	{ [] { run(other_mask); }, "__syncwarp of mask" },
	{ [] { run(not_in_mask); }, "mask 0000ffff is without the lane itself" },
	{ [] { run(from_outside); }, "takes the value of lane 20, which is not in the mask" },
	{ shared_behind, "beyond the shared memory of this launch" },
	{ shared_before, "beyond the shared memory of this launch" },
	{ shared_soon_behind, "beyond the shared memory of this launch" },
	{ reads_host, "which are memory of the host" },
	{ reads_unaligned, "not aligned as its type asks" },
	{ out_of_array, "not in its array" },
	{ much_stack, "beyond the emulator's stack" },
	{ freed, "device memory that is freed" },
	{ far_behind, "device memory that is freed or was never" },
	{ null, "kernel writes_at, block (" },
	{ askew, "not both aligned to 16" },
	{ guarded, "the host touches" },
	{ no_blocks, "kernel nothing: a grid of (0,1,1)" },
	{ long_grid, "a grid of (1,65536,1)" },
	{ large_block, "a block of (1025,1,1)" },
	{ much_shared, "49153 bytes of shared memory, where 49152 are allowed" },
	{ still_more_shared, "where 232448 are allowed" },
	{ early_end, "a stream is destroyed with work in it" },
	{ copy_of_freed, "are in no buffer" },
	{ copy_of_other_kind, "a copy of kind 2" },
};
extern "C" const int misuse_scene_count = sizeof misuse_scenes / sizeof *misuse_scenes;
