/* Kernels with and without the synchronization that they need. */
#include "tests/gpu/emulator/scenes.cuh"

enum { THREADS = 128, LANES = 32 };

/* --- A barrier between writing and reading --- */

static __global__ void reverse(int *out, const int *in, bool whole)
{
	__shared__ int turned[THREADS];
	turned[threadIdx.x] = in[threadIdx.x];
	if (whole)
		__syncthreads();
	out[threadIdx.x] = turned[THREADS - 1 - threadIdx.x];
}

/* __syncwarp does not order different warps. */
static __global__ void neighbours(int *out, const int *in, bool whole)
{
	int *turned = dynamic_shared<int>();
	turned[threadIdx.x] = in[threadIdx.x];
	if (whole)
		__syncthreads();
	else
		__syncwarp();
	out[threadIdx.x] = turned[THREADS - 1 - threadIdx.x];
}

/* Reads, then overwrites for the next round. */
static __global__ void rounds(int *out, const int *in, bool whole)
{
	__shared__ int turned[THREADS];
	int x = in[threadIdx.x];
	for (int i = 0; i < 3; i++) {
		turned[threadIdx.x] = x;
		__syncthreads();
		x = turned[THREADS - 1 - threadIdx.x];
		if (whole)
			__syncthreads();
	}
	out[threadIdx.x] = x;
}

static __global__ void inside_warps(int *out, const int *in, bool whole)
{
	__shared__ int turned[THREADS];
	turned[threadIdx.x] = in[threadIdx.x];
	if (whole)
		__syncwarp();
	out[threadIdx.x] = turned[threadIdx.x ^ 31];
}

static bool reverses(void (*kernel)(int *, const int *, bool), bool whole, int mask)
{
	both<int, THREADS> in, out;
	bool right = true;
	for (int i = 0; i < THREADS; i++)
		in.host[i] = i;
	in.put();
	start(nullptr, kernel, 1, THREADS, THREADS * sizeof(int), out.device, in.device, whole);
	out.get();
	for (int i = 0; i < THREADS; i++)
		right &= out.host[i] == (i ^ mask);
	return right;
}

static bool barrier(bool whole)
{
	return reverses(reverse, whole, THREADS - 1);
}
static bool warps(bool whole)
{
	return reverses(neighbours, whole, THREADS - 1);
}
static bool again(bool whole)
{
	return reverses(rounds, whole, THREADS - 1);
}
static bool lanes(bool whole)
{
	return reverses(inside_warps, whole, LANES - 1);
}

/* Each block of a launch writes its own number, or the next block's. */
static __global__ void across_blocks(int *out, bool whole)
{
	int i = (int)(whole ? blockIdx.x : (blockIdx.x + threadIdx.x) % gridDim.x);
	if (threadIdx.x < 2)
		out[THREADS * i + (int)(whole ? threadIdx.x : 0)] = (int)blockIdx.x;
}

static bool blocks(bool whole)
{
	both<int, 4 * THREADS> out;
	bool right = true;
	start(nullptr, across_blocks, 4, LANES, 0, out.device, whole);
	out.get();
	for (int i = 0; i < 4; i++)
		right &= out.host[THREADS * i] == i;
	return right;
}

/* --- What was never written --------------------------------------------------------------- */

static __global__ void sum_shared(float *out, bool whole)
{
	float *x = dynamic_shared<float>(), sum = 0;
	if (whole || threadIdx.x)
		x[threadIdx.x] = 1;
	__syncthreads();
	for (int i = 0; i < THREADS; i++)
		sum += x[i];
	if (threadIdx.x == 0)
		*out = sum;
}

static bool unwritten(bool whole)
{
	both<float, 1> out;
	start(nullptr, sum_shared, 1, THREADS, THREADS * sizeof(float), out.device, whole);
	out.get();
	return out.host[0] == THREADS;
}

/* --- Asynchronous copies ------------------------------------------------------------------ */

/* Two groups: the kernel waits for the first, and for the second only with `whole`. */
static __global__ void copy_two(float *out, const float *in, bool whole)
{
	float *x = dynamic_shared<float>();
	cp_async16_zfill(x + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
	cp_async_commit();
	cp_async16_zfill(x + 4 * (LANES + threadIdx.x), in, threadIdx.x % 2);
	cp_async_commit();
	if (whole)
		cp_async_wait<0>();
	else
		cp_async_wait<1>();
	__syncthreads();
	for (int i = 0; i < 8; i++)
		out[8 * threadIdx.x + i] = x[8 * threadIdx.x + i];
}

static bool copies(bool whole)
{
	both<float, 4 * LANES> in;
	both<float, 8 * LANES> out;
	bool right = true;
	for (int i = 0; i < 4 * LANES; i++)
		in.host[i] = (float)(i + 1);
	in.put();
	start(nullptr, copy_two, 1, LANES, 8 * LANES * sizeof(float), out.device, in.device, whole);
	out.get();
	for (int i = 0; i < 4 * LANES; i++) {
		right &= out.host[i] == (float)(i + 1);
		right &= out.host[4 * LANES + i] == (i / 4 % 2 ? (float)(i % 4 + 1) : 0);
	}
	return right;
}

/* --- Streams ------------------------------------------------------------------------------ */

static __global__ void add_kernel(float *x, int count, float by)
{
	for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count;
	     i += (int)(gridDim.x * blockDim.x))
		x[i] += by;
}

extern "C" void scenes_add(cudaStream_t stream, float *x, int count, float by)
{
	start(stream, add_kernel, 3, 32, 0, x, count, by);
}

static bool event_between(bool whole)
{
	both<float, 100> x;
	cudaStream_t s[2];
	cudaEvent_t done;
	bool right = true;
	for (int i = 0; i < 2; i++)
		cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking);
	cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
	cudaMemsetAsync(x.device, 0, sizeof x.host, s[0]);
	scenes_add(s[0], x.device, 100, 1);
	cudaEventRecord(done, s[0]);
	if (whole)
		cudaStreamWaitEvent(s[1], done, 0);
	cudaMemsetAsync(x.device, 0, sizeof x.host / 2, s[1]);
	cudaDeviceSynchronize();
	x.get();
	for (int i = 0; i < 100; i++)
		right &= x.host[i] == (i < 50 ? 0 : 1);
	cudaEventDestroy(done);
	for (int i = 0; i < 2; i++)
		cudaStreamDestroy(s[i]);
	return right;
}

/* Pinned memory is read when the copy runs. */
static bool reused_source(bool whole)
{
	both<float, 1> x;
	cudaStream_t s;
	float *from;
	cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
	cudaMallocHost((void **)&from, sizeof *from);
	*from = 1;
	cudaMemcpyAsync(x.device, from, sizeof *from, cudaMemcpyHostToDevice, s);
	if (whole)
		cudaStreamSynchronize(s);
	*from = 2;
	cudaStreamSynchronize(s);
	x.get();
	cudaStreamDestroy(s);
	cudaFreeHost(from);
	return x.host[0] == 1;
}

extern "C" const struct race_scene race_scenes[] = {
	{ "a barrier between writing and reading", barrier, true },
	{ "a barrier of the block between warps", warps, true },
	{ "a barrier between reading and writing again", again, true },
	{ "__syncwarp between lanes", lanes, true },
	{ "an array of its own for each block", blocks, true },
	{ "shared memory that somebody wrote", unwritten, false },
	{ "the wait for an asynchronous copy", copies, false },
	{ "an event between streams", event_between, false },
	{ "a wait before pinned memory is used again", reused_source, false },
};
extern "C" const int race_scene_count = sizeof race_scenes / sizeof *race_scenes;
