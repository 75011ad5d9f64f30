#include "tests/gpu/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 \
	"model.family=gpt2 model.layers=12 model.hidden=768 model.heads=12 model.seq=1024 " \
	"batch.micro=32 batch.global=32 "

static const struct {
	const char *name, *words, *toy; /* the toy's words override these */
} models[] = {
	{ "gpt2-50304", GPT2 "model.vocab=50304",
	  "model.layers=2 model.hidden=64 model.heads=2 model.seq=32 model.vocab=192 batch.micro=2 "
	  "batch.global=2" },
	{ "gpt2-50257", GPT2 "model.vocab=50257",
	  "model.layers=2 model.hidden=64 model.heads=2 model.seq=32 model.vocab=177 batch.micro=2 "
	  "batch.global=2" },
	{ "llama-1b",
	  "model.family=llama model.layers=16 model.hidden=2048 model.heads=32 model.kv_heads=8 "
	  "model.head_dim=64 model.ffn=8192 "
	  "model.tie_head=yes model.rope_theta=500000 model.vocab=128256 model.seq=2048 "
	  "batch.micro=8 batch.global=8",
	  "model.layers=2 model.hidden=64 model.heads=4 model.kv_heads=2 model.head_dim=16 "
	  "model.ffn=96 model.vocab=160 model.seq=32 "
	  "batch.micro=2 batch.global=2" },
};

enum { MODELS = sizeof models / sizeof *models, WORDS_MAX = 64 };

/* Both sides (peer.py) have the same optimizer: AdamW with clipping, at a small constant rate. */
static const char common[] = "parallel.dp=1 precision.dtype=bf16 job.steps=1000000 job.seed=7 "
			     "optimizer.lr=1e-4 optimizer.min_lr=1e-4 "
			     "optimizer.warmup=0 optimizer.clip=1 data.prefetch=1 ";

const char *models_name(int i)
{
	return i < MODELS ? models[i].name : NULL;
}

static int job_of(int i, bool toy, const char *backend_name, const char *more, struct job *out,
		  struct err *e)
{
	const char *list[WORDS_MAX];
	char *text, *rest;
	int n = 0;
	if (asprintf(&text, "%s job.device=%s %s %s %s", common,
		     strcmp(backend_name, "cuda") ? "cpu" : "cuda", models[i].words,
		     toy ? models[i].toy : "", more) < 0)
		return err_set(e, ERR_NOMEM, "no memory for the words of a job");
	rest = text;
	for (char *word; (word = strtok_r(rest, " \t\n", &rest)) && n < WORDS_MAX;)
		list[n++] = word;
	int rc = job_words(list, n, out, e);
	free(text);
	return rc;
}

int models_job(const char *name, bool toy, const char *backend_name, const char *more,
	       struct job *out, struct err *e)
{
	for (int i = 0; i < MODELS; i++)
		if (!strcmp(models[i].name, name))
			return job_of(i, toy, backend_name, more, out, e);
	return err_set(e, ERR_USAGE,
		       "there is no model %s; there are gpt2-50304, gpt2-50257 and llama-1b", name);
}
