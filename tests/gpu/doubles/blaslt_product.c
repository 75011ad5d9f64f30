/* The arithmetic of cuBLASLt's double: sums in fp32, in steps of K_STEP that are added one after the
 * other. */
#include "tests/gpu/doubles/blaslt.h"

#include "tests/gpu/doubles/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K_STEP = 64, POISON = 0xff };

size_t blas_width(cudaDataType_t type)
{
	switch (type) {
	case CUDA_R_32F:
		return 4;
	case CUDA_R_16F:
	case CUDA_R_16BF:
		return 2;
	case CUDA_R_8F_E4M3:
	case CUDA_R_8F_E5M2:
		return 1;
	default:
		return 0;
	}
}

/* --- Numbers --- */

struct format {
	int exponent, fraction; /* bits */
	bool finite;            /* e4m3: no infinities; all ones is the only NaN */
};

static struct format format_of(cudaDataType_t type)
{
	return type == CUDA_R_16F       ? (struct format){ 5, 10, false }
	       : type == CUDA_R_8F_E5M2 ? (struct format){ 5, 2, false }
					: (struct format){ 4, 3, true };
}

static float decode(struct format f, unsigned bits)
{
	int all = (1 << f.exponent) - 1, e = (int)(bits >> f.fraction) & all,
	    m = (int)bits & ((1 << f.fraction) - 1), bias = all / 2;
	float x = e ? ldexpf((float)((1 << f.fraction) + m), e - bias - f.fraction)
		    : ldexpf((float)m, 1 - bias - f.fraction);
	if (f.finite ? e == all && m == (1 << f.fraction) - 1 : e == all)
		x = m ? NAN : INFINITY;
	return bits >> (f.exponent + f.fraction) & 1 ? -x : x;
}

/* Rounds to the nearest even; fp8 saturates. */
static unsigned encode(struct format f, float x, bool saturate)
{
	int all = (1 << f.exponent) - 1, bias = all / 2, e;
	unsigned sign = (unsigned)(signbit(x) != 0) << (f.exponent + f.fraction),
		 whole = (1u << (f.exponent + f.fraction)) - 1;
	unsigned infinite = (unsigned)all << f.fraction, most = f.finite ? whole - 1 : infinite - 1;
	if (isnan(x))
		return sign | whole;
	frexpf(x, &e);
	e = x == 0 || e - 1 < 1 - bias ? 1 - bias : e - 1;
	double steps = isinf(x) ? 1e30 : nearbyint(ldexp(fabs((double)x), f.fraction - e));
	if (steps >= 2 << f.fraction) {
		steps /= 2;
		e++;
	}
	unsigned bits = steps > 1e20              ? whole
			: steps < 1 << f.fraction ? (unsigned)steps
						  : (unsigned)((e + bias) << f.fraction) +
							    ((unsigned)steps - (1u << f.fraction));
	return sign | (bits <= most ? bits : saturate ? most : infinite);
}

static float table[3][1 << 16]; /* of fp16, e5m2, e4m3 */

static const float *table_of(cudaDataType_t type)
{
	float *t = table[type == CUDA_R_16F ? 0 : type == CUDA_R_8F_E5M2 ? 1 : 2];
	unsigned count = 1u << 8 * blas_width(type);
	for (unsigned i = 0; t[1] == 0 && i < count; i++)
		t[count - 1 - i] = decode(format_of(type), count - 1 - i);
	return t;
}

static float of_bf16(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static void to_floats(float *to, cudaDataType_t type, const void *from, int64_t at, int64_t count)
{
	if (type == CUDA_R_32F) {
		memcpy(to, (const float *)from + at, (size_t)count * sizeof *to);
	} else if (type == CUDA_R_16BF) {
		for (int64_t i = 0; i < count; i++)
			to[i] = of_bf16(((const uint16_t *)from)[at + i]);
	} else {
		const float *t = table_of(type);
		for (int64_t i = 0; i < count; i++)
			to[i] = type == CUDA_R_16F ? t[((const uint16_t *)from)[at + i]]
						   : t[((const uint8_t *)from)[at + i]];
	}
}

static void put_bf16(uint16_t *to, float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	*to = (uint16_t)(isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void from_floats(cudaDataType_t type, void *to, int64_t at, const float *from, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		switch (type) {
		case CUDA_R_32F:
			((float *)to)[at + i] = from[i];
			break;
		case CUDA_R_16BF:
			put_bf16(&((uint16_t *)to)[at + i], from[i]);
			break;
		case CUDA_R_16F:
			((uint16_t *)to)[at + i] = (uint16_t)encode(format_of(type), from[i],
								    false);
			break;
		default:
			((uint8_t *)to)[at + i] = (uint8_t)encode(format_of(type), from[i], true);
		}
}

/* --- Products ----------------------------------------------------------------------------- */

/* Converts op(X) to fp32, column after column: [cols of op(X)][rows of op(X)]. */
static float *convert_matrix(const struct blas_layout *l, const void *at, int64_t first,
			     bool transposed)
{
	float *all = malloc((size_t)(l->rows * l->cols) * sizeof *all),
	      *column = malloc((size_t)l->rows * sizeof *column);
	for (int64_t j = 0; j < l->cols; j++) {
		to_floats(transposed ? column : all + j * l->rows, l->type, at, first + j * l->ld,
			  l->rows);
		for (int64_t i = 0; transposed && i < l->rows; i++)
			all[i * l->cols + j] = column[i];
	}
	free(column);
	return all;
}

/* sums[m] = column of b[k] times a[k][m]. */
static void column_product(float *restrict sums, float *restrict part, const float *restrict a,
			   const float *restrict b, int64_t m, int64_t k, int64_t b_step,
			   int64_t step)
{
	memset(sums, 0, (size_t)m * sizeof *sums);
	for (int64_t from = 0; from < k; from += step) {
		int64_t to = from + step < k ? from + step : k;
		memset(part, 0, (size_t)m * sizeof *part);
		for (int64_t x = from; x < to; x++) {
			float by = b[x * b_step];
			const float *restrict row = a + x * m;
			for (int64_t i = 0; i < m; i++)
				part[i] += row[i] * by;
		}
		for (int64_t i = 0; i < m; i++)
			sums[i] += part[i];
	}
}

/* GELU by its tanh formula, and its derivative. */
static float gelu(float x)
{
	return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
	float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
	return 0.5f * (1 + t) +
	       0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

static cudaDataType_t bias_type(const struct blas_call *c)
{
	return c->desc.bias_type < 0 ? c->d.type : (cudaDataType_t)c->desc.bias_type;
}

/* Applies the epilogue to the sums of column j of the result. gradient[m] accumulates the bias's
 * gradient. */
static void epilogue(const struct blas_call *c, float *sums, float *extra, const float *bias,
		     float *gradient, int64_t batch, int64_t j)
{
	const struct blas_desc *d = &c->desc;
	cudaDataType_t aux = d->aux_type < 0 ? c->d.type : (cudaDataType_t)d->aux_type;
	int64_t m = c->d.rows, at = batch * d->aux_stride + j * d->aux_ld;
	for (int64_t i = 0; (d->epilogue & CUBLASLT_EPILOGUE_BIAS) && i < m; i++)
		sums[i] += bias[i];
	if ((d->epilogue & (CUBLASLT_EPILOGUE_GELU_AUX)) == CUBLASLT_EPILOGUE_GELU_AUX)
		from_floats(aux, d->aux, at, sums, m);
	if ((d->epilogue & CUBLASLT_EPILOGUE_DGELU) == CUBLASLT_EPILOGUE_DGELU)
		to_floats(extra, aux, d->aux, at, m);
	for (int64_t i = 0; i < m; i++)
		if (d->epilogue & CUBLASLT_EPILOGUE_GELU)
			sums[i] = gelu(sums[i]);
		else if (d->epilogue & 64)
			sums[i] *= gelu_slope(extra[i]);
	for (int64_t i = 0; i < m; i++)
		gradient[i] += sums[i];
}

/* The sums over k of op(A)'s rows or op(B)'s columns. */
static void sums_of(float *out, const float *x, int64_t length, int64_t k)
{
	memset(out, 0, (size_t)length * sizeof *out);
	for (int64_t s = 0; s < k; s++)
		for (int64_t i = 0; i < length; i++)
			out[i] += x[s * length + i];
}

static float scale_of(const struct blas_call *c, int which)
{
	return c->desc.scales[which] ? *(const float *)c->desc.scales[which] : 1;
}

static float *numbers(int64_t count)
{
	return calloc((size_t)count, sizeof(float));
}

static float run_batch(const struct blas_call *c, int64_t batch, float largest)
{
	const struct blas_desc *d = &c->desc;
	int64_t m = c->d.rows, n = c->d.cols, k = d->trans_a ? c->a.rows : c->a.cols;
	float *a = convert_matrix(&c->a, c->at_a, batch * c->a.stride, d->trans_a);  /* [k][m] */
	float *b = convert_matrix(&c->b, c->at_b, batch * c->b.stride, !d->trans_b); /* [k][n] */
	float *sums = numbers(m), *part = numbers(m), *extra = numbers(m),
	      *bias = numbers(m > n ? m : n), *gradient = numbers(m);
	float alpha = c->alpha * scale_of(c, 0) * scale_of(c, 1);
	if (d->epilogue & CUBLASLT_EPILOGUE_BIAS)
		to_floats(bias, bias_type(c), d->bias, batch * d->bias_stride, m);
	for (int64_t j = 0; j < n; j++) {
		column_product(sums, part, a, b + j, m, k, n, K_STEP >> c->algorithm % 4);
		if (c->beta != 0)
			to_floats(extra, c->c.type, c->at_c, batch * c->c.stride + j * c->c.ld, m);
		for (int64_t i = 0; i < m; i++)
			sums[i] = alpha * sums[i] +
				  (c->beta != 0 ? c->beta * scale_of(c, 2) * extra[i] : 0);
		epilogue(c, sums, extra, bias, gradient, batch, j);
		for (int64_t i = 0; i < m; i++) {
			largest = fmaxf(largest, fabsf(sums[i]));
			sums[i] *= blas_is_fp8(c->d.type) ? scale_of(c, 3) : 1;
		}
		from_floats(c->d.type, c->at_d, batch * c->d.stride + j * c->d.ld, sums, m);
	}
	if (d->epilogue == CUBLASLT_EPILOGUE_BGRADA)
		sums_of(bias, a, m, k);
	else if (d->epilogue == CUBLASLT_EPILOGUE_BGRADB)
		sums_of(bias, b, n, k);
	if (d->epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB | 16))
		from_floats(bias_type(c), d->bias, batch * d->bias_stride,
			    d->epilogue & 16 ? gradient : bias,
			    d->epilogue == CUBLASLT_EPILOGUE_BGRADB ? n : m);
	float *all[] = { a, b, sums, part, extra, bias, gradient };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
	return largest;
}

bool blas_run(void *arg)
{
	const struct blas_call *c = arg;
	const bool plain = c->desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
			   c->desc.epilogue == CUBLASLT_EPILOGUE_BIAS;
	float largest = 0;
	double_spend(double_blas.seconds[c->algorithm] + (plain ? 0 : double_blas.epilogue));
	memset(c->workspace, POISON, c->workspace_bytes);
	for (int64_t batch = 0; batch < c->d.batch; batch++)
		largest = run_batch(c, batch, largest);
	if (c->desc.amax)
		*c->desc.amax = largest;
	return true;
}
