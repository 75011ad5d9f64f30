/* The models and layouts that `muster bench plan` runs if none are given. They are small enough for
 * two cores, and together use every strategy. */
#include "agent/tools/bench_plan.h"

#define GPT2 \
	"model.family=gpt2 model.layers=4 model.hidden=256 model.heads=4 model.vocab=4096 " \
	"model.seq=128 batch.micro=2 batch.global=16"
#define LLAMA \
	"model.family=llama model.layers=4 model.hidden=384 model.heads=6 model.kv_heads=2 " \
	"model.vocab=2048 model.seq=256 batch.micro=1 batch.global=8"
#define MIXTRAL \
	"model.family=mixtral model.layers=4 model.hidden=192 model.heads=4 model.kv_heads=2 " \
	"model.ffn=512 model.experts=4 " \
	"model.vocab=2048 model.seq=128 batch.micro=2 batch.global=16"

const struct bench_plan_job bench_plan_jobs[] = {
	{ "gpt2", GPT2, "" },
	{ "gpt2", GPT2, "parallel.dp=2" },
	{ "gpt2", GPT2, "parallel.tp=2" },
	{ "gpt2", GPT2, "parallel.pp=2" },
	{ "gpt2", GPT2, "parallel.pp=4 parallel.schedule=gpipe" },
	{ "gpt2", GPT2, "parallel.pp=2 parallel.schedule=zb-v" },
	{ "gpt2", GPT2, "parallel.dp=4 parallel.zero=1" },
	{ "gpt2", GPT2, "parallel.dp=2 parallel.zero=2" },
	{ "gpt2", GPT2, "parallel.tp=2 parallel.dp=2 parallel.sp=yes" },
	{ "gpt2 bf16", GPT2, "parallel.dp=2 precision.dtype=bf16" },
	{ "gpt2", GPT2, "parallel.tp=2 parallel.pp=2 parallel.dp=2" },
	{ "llama", LLAMA, "recompute.mode=full" },
	{ "llama", LLAMA, "parallel.dp=2 parallel.zero=3" },
	{ "llama", LLAMA, "parallel.tp=2 parallel.sp=yes recompute.mode=selective" },
	{ "llama", LLAMA, "parallel.cp=2" },
	{ "llama", LLAMA, "parallel.pp=2 parallel.schedule=interleaved" },
	{ "llama", LLAMA, "parallel.pp=4 parallel.schedule=zb-h1" },
	{ "llama", LLAMA, "parallel.dp=4" },
	{ "llama bf16", LLAMA, "parallel.tp=2 parallel.pp=2 precision.dtype=bf16" },
	{ "llama", LLAMA, "parallel.dp=8 parallel.zero=1" },
	{ "mixtral", MIXTRAL, "" },
	{ "mixtral", MIXTRAL, "parallel.dp=2 parallel.ep=2" },
	{ "mixtral cap", MIXTRAL, "parallel.dp=4 parallel.ep=4 model.capacity=1" },
	{ "mixtral", MIXTRAL, "parallel.dp=2" },
	{ "mixtral", MIXTRAL, "parallel.tp=2 parallel.pp=2" },
	{ "mixtral cap", MIXTRAL, "parallel.pp=2 parallel.dp=2 parallel.ep=2 model.capacity=1" },
};
const int bench_plan_n_jobs = sizeof bench_plan_jobs / sizeof *bench_plan_jobs;
