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

static bool has_bias(const struct ref64 *m, const char *what)
{
	return !m->llama ||
	       (m->qkv_bias && strncmp(what, "attn.o", 6) && !strncmp(what, "attn.", 5));
}

/* Returns NULL for the biases that LLaMA does not have. */
static const double *in_layer(const struct ref64 *m, int layer, const char *what)
{
	char name[96];
	if (strstr(what, ".bias") && !has_bias(m, what))
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

static void norm_of(const struct ref64 *m, int c, double *y, const double *x, const double *w,
		    const double *b)
{
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

static void norm(const struct ref64 *m, double *y, const double *x, const double *w,
		 const double *b)
{
	norm_of(m, m->hidden, y, x, w, b);
}

/* Normalizes each head of x in place. */
static void norm_heads(const struct ref64 *m, double *x, int heads, const double *w)
{
	double y[m->head_dim];
	for (int h = 0; h < heads; h++) {
		norm_of(m, m->head_dim, y, x + h * m->head_dim, w, NULL);
		memcpy(x + h * m->head_dim, y, sizeof y);
	}
}

/* Returns the angle by which pair i rotates per position: theta^(-2i/dim), stretched. Llama 3.1
 * has 3 bands. Waves shorter than original/high are unchanged. Waves longer than original/low are
 * stretched in full. Between them the stretch is a ramp. */
static double frequency(const struct ref64 *m, int i)
{
	double f = pow(m->theta, -2.0 * i / m->head_dim), turns = m->rope_original * f / (2 * M_PI);
	if (m->rope == REF64_PLAIN)
		return f;
	if (m->rope == REF64_LINEAR)
		return f / m->rope_factor;
	double stays = fmin(1, fmax(0, (turns - m->rope_low) / (m->rope_high - m->rope_low)));
	return f * stays + f / m->rope_factor * (1 - stays);
}

/* Rotates each head of x: the pairs (i, i + dim/2). */
static void rope(const struct ref64 *m, double *x, int heads, int pos)
{
	int d = m->head_dim;
	for (int h = 0; h < heads; h++)
		for (int i = 0; i < d / 2; i++) {
			double a = pos * frequency(m, i);
			double *p = &x[h * d + i], *q = &x[h * d + i + d / 2];
			double u = *p * cos(a) - *q * sin(a);
			double v = *q * cos(a) + *p * sin(a);
			*p = u;
			*q = v;
		}
}

/* Computes o[head_dim] of one query, with the keys and values of its kv head at the positions from
 * … pos. */
static void attend(const struct ref64 *m, double *o, const double *q, const double *k,
		   const double *v, int from, int pos, int stride)
{
	int d = m->head_dim;
	double score[pos + 1], max = -INFINITY, sum = 0;
	for (int j = from; j <= pos; j++) {
		score[j] = 0;
		for (int i = 0; i < d; i++)
			score[j] += q[i] * k[j * stride + i] / sqrt(d);
		max = fmax(max, score[j]);
	}
	for (int j = from; j <= pos; j++)
		sum += score[j] = exp(score[j] - max);
	for (int i = 0; i < d; i++) {
		o[i] = 0;
		for (int j = from; j <= pos; j++)
			o[i] += score[j] / sum * v[j * stride + i];
	}
}

/* x [seq, hidden] += attention of one sequence */
static void attention(const struct ref64 *m, int layer, const int32_t *starts, double *x)
{
	int c = m->hidden, d = m->head_dim, nq = m->heads * d, nkv = m->kv_heads * d,
	    each = m->heads / m->kv_heads;
	double *q = numbers(m->seq * nq), *k = numbers(m->seq * nkv), *v = numbers(m->seq * nkv);
	double *y = numbers(c), *o = numbers(nq);

	for (int t = 0; t < m->seq; t++) {
		norm(m, y, x + t * c, in_layer(m, layer, "norm1.weight"),
		     in_layer(m, layer, "norm1.bias"));
		linear(q + t * nq, y, in_layer(m, layer, "attn.q.weight"),
		       in_layer(m, layer, "attn.q.bias"), c, nq);
		linear(k + t * nkv, y, in_layer(m, layer, "attn.k.weight"),
		       in_layer(m, layer, "attn.k.bias"), c, nkv);
		linear(v + t * nkv, y, in_layer(m, layer, "attn.v.weight"),
		       in_layer(m, layer, "attn.v.bias"), c, nkv);
		if (m->qk_norm) {
			norm_heads(m, q + t * nq, m->heads,
				   in_layer(m, layer, "attn.q_norm.weight"));
			norm_heads(m, k + t * nkv, m->kv_heads,
				   in_layer(m, layer, "attn.k_norm.weight"));
		}
		if (m->llama) {
			rope(m, q + t * nq, m->heads, t);
			rope(m, k + t * nkv, m->kv_heads, t);
		}
	}
	for (int t = 0; t < m->seq; t++) {
		for (int h = 0; h < m->heads; h++)
			attend(m, o + h * d, q + t * nq + h * d, k + h / each * d, v + h / each * d,
			       starts ? starts[t] : 0, t, nkv);
		linear(y, o, in_layer(m, layer, "attn.o.weight"), in_layer(m, layer, "attn.o.bias"),
		       nq, c);
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

/* Sets out[hidden] to the result of one feed-forward block on y. The weights are named prefix +
 * up, gate, down. */
static void feed_forward(const struct ref64 *m, int layer, const char *prefix, double *out,
			 const double *y)
{
	int f = m->ffn;
	double *up = numbers(f), *gate = numbers(f);
	const double *of[6];
	static const char *const parts[6] = { "up.weight", "up.bias",     "gate.weight",
					      "gate.bias", "down.weight", "down.bias" };
	for (int i = 0; i < 6; i++) {
		char name[64];
		snprintf(name, sizeof name, "%s%s", prefix, parts[i]);
		of[i] = !m->llama && i / 2 == 1 ? NULL : in_layer(m, layer, name);
	}
	linear(up, y, of[0], of[1], m->hidden, f);
	if (m->llama)
		linear(gate, y, of[2], NULL, m->hidden, f);
	for (int i = 0; i < f; i++)
		up[i] = m->llama ? silu(gate[i]) * up[i] : gelu(up[i]);
	linear(out, up, of[4], of[5], f, m->hidden);
	free(up), free(gate);
}

/* x [seq, hidden] += mlp, token by token */
static void mlp(const struct ref64 *m, int layer, double *x)
{
	int c = m->hidden;
	double *y = numbers(c), *out = numbers(c);
	for (int t = 0; t < m->seq; t++) {
		norm(m, y, x + t * c, in_layer(m, layer, "norm2.weight"),
		     in_layer(m, layer, "norm2.bias"));
		feed_forward(m, layer, "mlp.", out, y);
		for (int i = 0; i < c; i++)
			x[t * c + i] += out[i];
	}
	free(y), free(out);
}

/* Returns the index of the largest logit that has not been taken. */
static int choose(const double *logits, const bool *taken, int n)
{
	int best = -1;
	for (int i = 0; i < n; i++)
		if (!taken[i] && (best < 0 || logits[i] > logits[best]))
			best = i;
	return best;
}

/* Chooses one token's experts and their weights. p: all probabilities. Returns the logits'
 * log-sum-exp. */
static double route(const struct ref64 *m, const double *logits, int *chosen, double *weights,
		    double *p)
{
	bool taken[m->experts];
	double sum = 0, of_chosen = 0;
	for (int i = 0; i < m->experts; i++) {
		taken[i] = false;
		sum += exp(logits[i]);
	}
	for (int i = 0; i < m->experts; i++)
		p[i] = exp(logits[i]) / sum;
	for (int j = 0; j < m->top; j++) {
		chosen[j] = choose(logits, taken, m->experts);
		taken[chosen[j]] = true;
		of_chosen += p[chosen[j]];
	}
	for (int j = 0; j < m->top; j++)
		weights[j] = p[chosen[j]] / (m->before ? 1 : of_chosen);
	return log(sum);
}

/* x [seq, hidden] += the results of the chosen experts. Returns the router's losses, summed over
 * the tokens. */
static double mixture(const struct ref64 *m, int layer, double *x)
{
	int c = m->hidden, e = m->experts, taken[e];
	int most = m->capacity > 0 ? (int)ceil(m->capacity * m->seq * m->top / e) : m->seq;
	double *y = numbers(c), *out = numbers(c), *logits = numbers(e), *p = numbers(e),
	       *share = numbers(e), *mean = numbers(e);
	double balance = 0, squares = 0;
	memset(taken, 0, sizeof taken);
	for (int t = 0; t < m->seq; t++) {
		int chosen[m->top];
		double weights[m->top];
		norm(m, y, x + t * c, in_layer(m, layer, "norm2.weight"), NULL);
		linear(logits, y, in_layer(m, layer, "moe.router.weight"), NULL, c, e);
		double lse = route(m, logits, chosen, weights, p);
		squares += lse * lse;
		for (int i = 0; i < e; i++)
			mean[i] += p[i] / m->seq;
		for (int j = 0; j < m->top; j++) {
			char prefix[32];
			share[chosen[j]] += 1.0 / (m->seq * m->top);
			if (taken[chosen[j]]++ >= most)
				continue;
			snprintf(prefix, sizeof prefix, "moe.experts.%d.", chosen[j]);
			feed_forward(m, layer, prefix, out, y);
			for (int i = 0; i < c; i++)
				x[t * c + i] += weights[j] * out[i];
		}
	}
	for (int i = 0; i < e; i++)
		balance += share[i] * mean[i];
	free(y), free(out), free(logits), free(p), free(share), free(mean);
	return m->aux * e * balance * m->seq + m->z * squares;
}

/* Returns the sum of one sequence's token losses and router losses. */
static double sequence_loss(const struct ref64 *m, const int32_t *in, const int32_t *want,
			    const int32_t *starts)
{
	int c = m->hidden;
	double *x = numbers(m->seq * c), *y = numbers(c), *z = numbers(m->vocab), loss = 0;
	const double *table = named(m, "embed.tokens.weight");
	const double *head = m->tied ? table : named(m, "head.weight");

	for (int t = 0; t < m->seq; t++)
		for (int i = 0; i < c; i++)
			x[t * c + i] = table[in[t] * c + i] +
				       (m->llama ? 0
						 : named(m, "embed.positions.weight")[t * c + i]);
	for (int l = 0; l < m->layers; l++) {
		attention(m, l, starts, x);
		if (m->experts)
			loss += mixture(m, l, x);
		else
			mlp(m, l, x);
	}
	for (int t = 0; t < m->seq; t++) {
		double sum = 0;
		norm(m, y, x + t * c, named(m, "norm.weight"),
		     m->llama ? NULL : named(m, "norm.bias"));
		linear(z, y, head, NULL, c, m->vocab);
		for (int j = 0; j < m->vocab; j++)
			sum += exp(z[j] - z[want[t]]);
		loss += log(sum);
	}
	free(x), free(y), free(z);
	return loss;
}

double ref64_loss(const struct ref64 *m, const int32_t *inputs, const int32_t *targets,
		  const int32_t *starts, int batch)
{
	double sum = 0;
	for (int b = 0; b < batch; b++)
		sum += sequence_loss(m, inputs + b * m->seq, targets + b * m->seq,
				     starts ? starts + b * m->seq : NULL);
	return sum / ((double)batch * m->seq);
}
