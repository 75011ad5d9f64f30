/* The fragments of each lane, written to memory. */
#include "tests/gpu/emulator/scenes.cuh"

static __global__ void load(uint32_t *out, const uint16_t *rows, bool transposed)
{
	uint16_t *x = dynamic_shared<uint16_t>();
	uint32_t r[4];
	for (int i = 0; i < 8; i++)
		x[8 * threadIdx.x + i] = rows[8 * threadIdx.x + i];
	__syncwarp();
	if (transposed)
		ldmatrix_x4_trans(r, x + 8 * threadIdx.x);
	else
		ldmatrix_x4(r, x + 8 * threadIdx.x);
	for (int i = 0; i < 4; i++)
		out[4 * threadIdx.x + i] = r[i];
}

extern "C" void fragments_ldmatrix(const uint16_t rows[32][8], bool transposed, uint32_t out[32][4])
{
	both<uint16_t, 32 * 8> in;
	both<uint32_t, 32 * 4> r;
	memcpy(in.host, rows, sizeof in.host);
	in.put();
	start(nullptr, load, 1, 32, 32 * 16, r.device, in.device, transposed);
	r.get();
	memcpy(out, r.host, sizeof r.host);
}

template <class T> static __global__ void multiply(float *d, const uint32_t *a, const uint32_t *b)
{
	int l = threadIdx.x;
	uint32_t x[4], y[2];
	float z[4];
	for (int i = 0; i < 4; i++) {
		x[i] = a[4 * l + i];
		y[i / 2] = b[2 * l + i / 2];
		z[i] = d[4 * l + i];
	}
	mma_16816<T>(z, x, y);
	for (int i = 0; i < 4; i++)
		d[4 * l + i] = z[i];
}

extern "C" void fragments_mma(bool bf16, const uint32_t a[32][4], const uint32_t b[32][2],
			      float d[32][4])
{
	both<uint32_t, 32 * 4> x;
	both<uint32_t, 32 * 2> y;
	both<float, 32 * 4> z;
	memcpy(x.host, a, sizeof x.host);
	memcpy(y.host, b, sizeof y.host);
	memcpy(z.host, d, sizeof z.host);
	x.put();
	y.put();
	z.put();
	start(nullptr, bf16 ? multiply<__nv_bfloat16> : multiply<__half>, 1, 32, 0, z.device,
	      x.device, y.device);
	z.get();
	memcpy(d, z.host, sizeof z.host);
}

static __global__ void shuffle(int *out, int kind, int by, int width)
{
	int l = threadIdx.x;
	out[l] = kind == SHUFFLE        ? __shfl_sync(0xffffffff, l, by, width)
		 : kind == SHUFFLE_UP   ? __shfl_up_sync(0xffffffff, l, by, width)
		 : kind == SHUFFLE_DOWN ? __shfl_down_sync(0xffffffff, l, by, width)
					: __shfl_xor_sync(0xffffffff, l, by, width);
}

extern "C" void fragments_shuffle(enum shuffle kind, int by, int width, int out[32])
{
	both<int, 32> r;
	start(nullptr, shuffle, 1, 32, 0, r.device, (int)kind, by, width);
	r.get();
	memcpy(out, r.host, sizeof r.host);
}
