#include "agent/engine/hf/import.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"
#include "base/human.h"

#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"muster ckpt export — export a checkpoint as a Hugging Face folder\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt export PATH -o HF_FOLDER [--dtype TYPE] [--shard-size SIZE] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Writes config.json and model.safetensors with the names and shapes of transformers'\n"
	"  GPT-2, LLaMA and Mixtral, from a checkpoint of any layout. If the tensors have more\n"
	"  than SIZE bytes, they go to model-00001-of-0000N.safetensors and so on, with\n"
	"  model.safetensors.index.json. PATH is a checkpoint, or a run's folder or its ckpt\n"
	"  folder; then the last valid checkpoint is exported. All digests are verified. The\n"
	"  folder appears completely or not at all.\n"
	"\n"
	"  The files that are attached to an imported model are written again: its tokenizer,\n"
	"  chat template, generation_config.json and licence unchanged, and the ids of its "
	"special\n"
	"  tokens in config.json, whose other keys are muster's own. README.md is a model card\n"
	"  with the steps, tokens and loss of the checkpoint.\n"
	"\n"
	"  A Mixtral that was trained with model.aux_loss > 0 gets output_router_logits = true "
	"and\n"
	"  the coefficient with which transformers adds the same balancing loss. transformers 4\n"
	"  cannot generate with that key, so set it to false in a copy for that. z_loss has no "
	"key\n"
	"  there.\n"
	"\n"
	"OPTIONS\n"
	"  -o HF_FOLDER       the output; it must not exist, or be empty\n"
	"  --dtype TYPE       fp32 (default), bf16 or fp16, rounded to the nearest; numbers "
	"beyond\n"
	"                     fp16 are refused\n"
	"  --shard-size SIZE  maximum bytes of the tensors in a file: a number with K, M, G\n"
	"                     (powers of 1000) or Ki, Mi, Gi (of 1024); default 5G. A larger\n"
	"                     tensor has a file of its own.\n"
	"  --json             print {path, step, family, tensors, parameters, bytes, files,\n"
	"                     carried: number of files attached to the model}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt export runs/mine -o mine-hf --dtype bf16\n"
	"\n"
	"EXIT STATUS\n"
	"  0  exported\n"
	"  1  the checkpoint is damaged, or HF_FOLDER cannot be written\n"
	"  2  usage\n";

/* Parses digits and a unit; -1: the text is invalid. */
static int64_t parse_size(const char *text)
{
	static const struct {
		const char *unit;
		int64_t bytes;
	} units[] = {
		{ "", 1 },         { "K", 1000 },     { "M", 1000000 },  { "G", 1000000000 },
		{ "Ki", 1 << 10 }, { "Mi", 1 << 20 }, { "Gi", 1 << 30 },
	};
	char *end;
	if (!isdigit((unsigned char)*text))
		return -1;
	int64_t n = strtoll(text, &end, 10), bytes;
	size_t len = strlen(end);
	if (len && (end[len - 1] == 'B' || end[len - 1] == 'b'))
		len--;
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (strlen(units[i].unit) == len && !strncmp(units[i].unit, end, len))
			return n > 0 && !__builtin_mul_overflow(n, units[i].bytes, &bytes) ? bytes
											   : -1;
	return -1;
}

static int print_report(const struct hf_report *r, const struct manifest *m, bool json)
{
	const char *family = json_string_value(json_object_get(m->model, "family"));
	char params[HUMAN], bytes[HUMAN];
	if (json)
		return tool_print_json(
			&tool_ckpt_export,
			json_pack("{s:s, s:I, s:s, s:I, s:I, s:I, s:i, s:i}", "path", r->path,
				  "step", (json_int_t)m->state.step, "family", family, "tensors",
				  (json_int_t)r->tensors, "parameters", (json_int_t)r->params,
				  "bytes", (json_int_t)r->bytes, "files", r->files, "carried",
				  r->carried));
	printf("%s: %s of step %" PRId64 ", %s parameters in %" PRId64
	       " tensors, %s in %d file%s\n",
	       r->path, family, m->state.step, human_count((double)r->params, "", params),
	       r->tensors, human_bytes((double)r->bytes, bytes), r->files, human_s(r->files));
	return TOOL_OK;
}

static int export(const char *word, const char *folder, const struct hf_type *type,
		  int64_t shard_size, bool json)
{
	struct err e = ERR_INIT;
	struct ckpt_dir d;
	struct manifest m;
	static struct hf_report report; /* too large for a small stack */
	char path[PATH_MAX];
	if (tool_ckpt_dir_open(word, &d, &e))
		return tool_fail(&tool_ckpt_export, &e);
	int rc = tool_ckpt_dir_choose(&d, path, &m, &e);
	tool_ckpt_dir_close(&d);
	if (rc)
		return tool_fail(&tool_ckpt_export, &e);
	rc = hf_export(path, &m, folder, type, shard_size, &report, &e)
		     ? tool_fail(&tool_ckpt_export, &e)
		     : print_report(&report, &m, json);
	ckpt_manifest_fini(&m);
	return rc;
}

static int export_main(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' }, { "dtype", required_argument, NULL, 't' },
		{ "shard-size", required_argument, NULL, 's' }, { "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	/* clang-format on */
	const char *folder = NULL;
	const struct hf_type *type = hf_numbers_type("fp32");
	int64_t shard_size = 5000000000;
	bool json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1;) {
		switch (c) {
		case 'o':
			folder = optarg;
			break;
		case 't':
			type = hf_numbers_type(optarg);
			if (!type)
				return tool_usage(&tool_ckpt_export,
						  "--dtype %s is none of fp32, bf16, fp16", optarg);
			break;
		case 's':
			shard_size = parse_size(optarg);
			if (shard_size < 0)
				return tool_usage(&tool_ckpt_export,
						  "--shard-size %s is not a size; use one such as "
						  "5G or 500Mi",
						  optarg);
			break;
		case 'j':
			json = true;
			break;
		default:
			return tool_option(&tool_ckpt_export, c, argv);
		}
	}
	if (argc - optind != 1)
		return tool_usage(&tool_ckpt_export, "one PATH is needed");
	if (!folder || !*folder)
		return tool_usage(&tool_ckpt_export, "-o HF_FOLDER is missing");
	return export(argv[optind], folder, type, shard_size, json);
}

const struct tool tool_ckpt_export = { "ckpt", "export", export_main,
				       "export a checkpoint as a Hugging Face folder", page };
