/*
 * models — the models that are measured on a GPU, and toy models of the same kind for testing the
 * programs.
 *
 *     gpt2-50304, gpt2-50257  GPT-2 124M: 32 sequences of 1024, with the vocabulary rounded up to
 *                             whole tiles, and as published
 *     llama-1b                Llama 3.2 1B's published sizes: 16 layers, hidden 2048, ffn 8192, 32
 *                             heads of 64 over 8, tied head, vocabulary 128256; 8 sequences of
 *                             2048. (With hidden 2048 and 16 layers, ffn 8192 gives a billion
 *                             parameters; 5632 is TinyLlama's, which has 22 layers.)
 *
 * tests/gpu/peer.py has the same table.
 */
#ifndef MUSTER_TESTS_GPU_MODELS_H
#define MUSTER_TESTS_GPU_MODELS_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>

/* The job of a model in bf16 on one device, with additional keys. ERR_USAGE: there is no model of this
 * name. backend: "cuda", or another one, whose jobs have device cpu. */
int models_job(const char *name, bool toy, const char *backend_name, const char *more,
	       struct job *out, struct err *e);
/* The i-th name, or NULL. */
const char *models_name(int i);

#endif
