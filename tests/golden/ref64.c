#include "tests/golden/ref64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double *named(const struct ref64 *m, const char *name)
{
	for (int i = 0; i < m->n_tensors; i++)
		if (!strcmp(m->tensors[i].name, name))
			return m->tensors[i].data;
	fprintf(stderr, "ref64: no tensor %s\n", name);
	abort();
}

/* NULL for the biases that LLaMA does not have. */
static const double *in_layer(const struct ref64 *m, int layer, const char *what)
{
	char name[96];
	if (m->llama && strstr(what, ".bias"))
		return NULL;
	snprintf(name, sizeof name, "layers.%d.%s", layer, what);
	return named(m, name);
}

static double *numbers(int64_t n)
{
	double *p = calloc((size_t)n, sizeof *p);
	if (!p)
		abort();
	return p;
}

/* y[out] = w[out, in] x + b */
static void linear(double *y, const double *x, const double *w, const double *b, int in, int out)
{
	for (int o = 0; o < out; o++) {
		double sum = b ? b[o] : 0;
		for (int i = 0; i < in; i++)
			sum += w[o * in + i] * x[i];
		y[o] = sum;
	}
}

static void norm(const struct ref64 *m, double *y, const double *x, const double *w, const double *b)
{
	int c = m->hidden;
	double mean = 0, var = 0;
	if (!m->llama) {
		for (int i = 0; i < c; i++)
			mean += x[i] / c;
	}
	for (int i = 0; i < c; i++)
		var += (x[i] - mean) * (x[i] - mean) / c;
	for (int i = 0; i < c; i++)
		y[i] = (x[i] - mean) / sqrt(var + m->eps) * w[i] + (b ? b[i] : 0);
}

/* Rotates each head of x: the pair (i, i + dim/2) by pos * theta^(-2i/dim). */
static void rope(const struct ref64 *m, double *x, int heads, int pos)
{
	int d = m->head_dim;
	for (int h = 0; h < heads; h++)
		for (int i = 0; i < d / 2; i++) {
			double a = pos * pow(m->theta, -2.0 * i / d);
			double *p = &x[h * d + i], *q = &x[h * d + i + d / 2];
			double u = *p * cos(a) - *q * sin(a);
			double v = *q * cos(a) + *p * sin(a);
			*p = u;
			*q = v;
		}
}

/* o[head_dim] of one query against keys and values 0 … pos of its kv head. */
static void attend(const struct ref64 *m, double *o, const double *q, const double *k, const double *v, int pos, int stride)
{
	int d = m->head_dim;
	double score[pos + 1], max = -INFINITY, sum = 0;
	for (int j = 0; j <= pos; j++) {
		score[j] = 0;
		for (int i = 0; i < d; i++)
			score[j] += q[i] * k[j * stride + i] / sqrt(d);
		max = fmax(max, score[j]);
	}
	for (int j = 0; j <= pos; j++)
		sum += score[j] = exp(score[j] - max);
	for (int i = 0; i < d; i++) {
		o[i] = 0;
		for (int j = 0; j <= pos; j++)
			o[i] += score[j] / sum * v[j * stride + i];
	}
}

/* x [seq, hidden] += attention of one sequence */
static void attention(const struct ref64 *m, int layer, double *x)
{
	int c = m->hidden, d = m->head_dim, nq = m->heads * d, nkv = m->kv_heads * d, each = m->heads / m->kv_heads;
	double *q = numbers(m->seq * nq), *k = numbers(m->seq * nkv), *v = numbers(m->seq * nkv);
	double *y = numbers(c), *o = numbers(nq);

	for (int t = 0; t < m->seq; t++) {
		norm(m, y, x + t * c, in_layer(m, layer, "norm1.weight"), in_layer(m, layer, "norm1.bias"));
		linear(q + t * nq, y, in_layer(m, layer, "attn.q.weight"), in_layer(m, layer, "attn.q.bias"), c, nq);
		linear(k + t * nkv, y, in_layer(m, layer, "attn.k.weight"), in_layer(m, layer, "attn.k.bias"), c, nkv);
		linear(v + t * nkv, y, in_layer(m, layer, "attn.v.weight"), in_layer(m, layer, "attn.v.bias"), c, nkv);
		if (m->llama) {
			rope(m, q + t * nq, m->heads, t);
			rope(m, k + t * nkv, m->kv_heads, t);
		}
	}
	for (int t = 0; t < m->seq; t++) {
		for (int h = 0; h < m->heads; h++)
			attend(m, o + h * d, q + t * nq + h * d, k + h / each * d, v + h / each * d, t, nkv);
		linear(y, o, in_layer(m, layer, "attn.o.weight"), in_layer(m, layer, "attn.o.bias"), nq, c);
		for (int i = 0; i < c; i++)
			x[t * c + i] += y[i];
	}
	free(q), free(k), free(v), free(y), free(o);
}

static double gelu(double x)
{
	return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double silu(double x)
{
	return x / (1 + exp(-x));
}

/* x [seq, hidden] += mlp, token by token */
static void mlp(const struct ref64 *m, int layer, double *x)
{
	int c = m->hidden, f = m->ffn;
	double *y = numbers(c), *up = numbers(f), *gate = numbers(f);

	for (int t = 0; t < m->seq; t++) {
		norm(m, y, x + t * c, in_layer(m, layer, "norm2.weight"), in_layer(m, layer, "norm2.bias"));
		linear(up, y, in_layer(m, layer, "mlp.up.weight"), in_layer(m, layer, "mlp.up.bias"), c, f);
		if (m->llama)
			linear(gate, y, in_layer(m, layer, "mlp.gate.weight"), NULL, c, f);
		for (int i = 0; i < f; i++)
			up[i] = m->llama ? silu(gate[i]) * up[i] : gelu(up[i]);
		linear(y, up, in_layer(m, layer, "mlp.down.weight"), in_layer(m, layer, "mlp.down.bias"), f, c);
		for (int i = 0; i < c; i++)
			x[t * c + i] += y[i];
	}
	free(y), free(up), free(gate);
}

/* Sum of one sequence's token losses. */
static double sequence_loss(const struct ref64 *m, const int32_t *in, const int32_t *want, double *logits)
{
	int c = m->hidden;
	double *x = numbers(m->seq * c), *y = numbers(c), *z = numbers(m->vocab), loss = 0;
	const double *table = named(m, "embed.tokens.weight");
	const double *head = m->tied ? table : named(m, "head.weight");

	for (int t = 0; t < m->seq; t++)
		for (int i = 0; i < c; i++)
			x[t * c + i] = table[in[t] * c + i] + (m->llama ? 0 : named(m, "embed.positions.weight")[t * c + i]);
	for (int l = 0; l < m->layers; l++) {
		attention(m, l, x);
		mlp(m, l, x);
	}
	for (int t = 0; t < m->seq; t++) {
		double sum = 0;
		norm(m, y, x + t * c, named(m, "norm.weight"), m->llama ? NULL : named(m, "norm.bias"));
		linear(z, y, head, NULL, c, m->vocab);
		for (int j = 0; j < m->vocab; j++)
			sum += exp(z[j] - z[want[t]]);
		loss += log(sum);
		if (logits)
			memcpy(logits + t * m->vocab, z, (size_t)m->vocab * sizeof *z);
	}
	free(x), free(y), free(z);
	return loss;
}

double ref64_loss(const struct ref64 *m, const int32_t *inputs, const int32_t *targets, int batch, double *logits)
{
	double sum = 0;
	for (int b = 0; b < batch; b++)
		sum += sequence_loss(m, inputs + b * m->seq, targets + b * m->seq,
				     logits ? logits + (int64_t)b * m->seq * m->vocab : NULL);
	return sum / ((double)batch * m->seq);
}
