#include "agent/engine/hf/import.h"
#include "agent/tools/tools.h"
#include "base/human.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static const char page[] =
	"muster ckpt import — import a Hugging Face folder as a checkpoint\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt import HF_FOLDER -o CKPT_DIR [--seq N] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Reads config.json and model.safetensors (or the files of model.safetensors.index.json)\n"
	"  of a GPT-2, LLaMA or Mixtral model in F32, BF16 or F16. It writes\n"
	"  CKPT_DIR/step-00000000, a checkpoint from which any layout can start, and\n"
	"  CKPT_DIR/model.ini, a job file with the matching section [model] and with\n"
	"  checkpoint.resume set to it. The folder must have exactly the tensors of the model:\n"
	"  the error names one that is missing or unknown, and a key of config.json that muster\n"
	"  does not support. At most one tensor is in memory at a time.\n"
	"\n"
	"  Mixtral's router_aux_loss_coef becomes model.aux_loss = coefficient *\n"
	"  experts_per_token / layers if output_router_logits is true. Otherwise transformers\n"
	"  trains without a balancing loss, and so does muster, with aux_loss = 0. Rotary\n"
	"  positions are those that transformers 5 computes; a file that gives one number twice\n"
	"  with different values is refused.\n"
	"\n"
	"  The model's other files are kept in the checkpoint, and every run that resumes from it\n"
	"  keeps them in its own checkpoints, so that `muster ckpt export` and `muster generate`\n"
	"  find them: config.json (of which an export keeps the ids of the special tokens),\n"
	"  generation_config.json, the tokenizer's files, the chat template, and licences. Code\n"
	"  is never kept.\n"
	"\n"
	"  A folder with weights in pytorch_model.bin, an adapter, a classifier or quantized\n"
	"  weights is refused; the error gives the remedy. NaNs and infinities are imported as\n"
	"  they are, with a note that names the tensor.\n"
	"\n"
	"  Training starts at step 0 with the optimizer's moments at zero.\n"
	"\n"
	"OPTIONS\n"
	"  -o CKPT_DIR  the output; it is created, and must not hold a step-00000000\n"
	"  --seq N      tokens per sequence in training, in place of max_position_embeddings\n"
	"               (LLaMA and Mixtral, whose positions are rotary: no weight depends on it)\n"
	"  --json       print {path, family, tensors, parameters, bytes, carried: number of files\n"
	"               attached to the model, notes: [text], model: the section as text}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt import gpt2/ -o gpt2-ckpt\n"
	"  muster run gpt2-ckpt/model.ini data.path=text optimizer.lr=1e-5 job.steps=500\n"
	"\n"
	"EXIT STATUS\n"
	"  0  imported\n"
	"  1  the folder is damaged, muster does not support its model, or CKPT_DIR cannot be\n"
	"     written\n"
	"  2  usage\n";

/* Notes are printed at once as text, or at the end as JSON. */
struct notes {
	json_t *list; /* NULL: text */
};

static void put_note(void *arg, const char *text)
{
	const struct notes *n = arg;
	if (n->list)
		json_array_append_new(n->list, json_string(text));
	else
		fprintf(stderr, "muster ckpt import: note: %s\n", text);
}

static int print_json(const struct hf_report *r, const char *family, const char *section,
		      json_t *notes)
{
	return tool_print_json(&tool_ckpt_import,
			       json_pack("{s:s, s:s, s:I, s:I, s:I, s:i, s:O, s:s}", "path",
					 r->path, "family", family, "tensors",
					 (json_int_t)r->tensors, "parameters",
					 (json_int_t)r->params, "bytes", (json_int_t)r->bytes,
					 "carried", r->carried, "notes", notes, "model", section));
}

static void print_text(const struct hf_report *r, const char *family, const char *section)
{
	char params[HUMAN];
	printf("%s: %s of %s parameters from %" PRId64 " tensors", r->path, family,
	       human_count((double)r->params, "", params), r->tensors);
	if (r->carried)
		printf(", with %d file%s that came with it", r->carried, human_s(r->carried));
	printf("; its job file:\n\n%s", section);
}

static int bring_in(const char *folder, const char *dir, int64_t seq, bool json)
{
	struct err e = ERR_INIT;
	struct hf_report report;
	struct notes notes = { json ? json_array() : NULL };
	const struct hf_listener listener = { put_note, &notes };
	struct buf section = BUF_INIT;
	int rc = TOOL_OK;
	if (hf_import(folder, dir, seq, &listener, &report, &e)) {
		json_decref(notes.list);
		return tool_fail(&tool_ckpt_import, &e);
	}
	const char *family = job_word(&report.job, offsetof(struct job, model.family));
	hf_job_file(&report, &section);
	if (json)
		rc = print_json(&report, family, buf_str(&section), notes.list);
	else
		print_text(&report, family, buf_str(&section));
	buf_fini(&section);
	json_decref(notes.list);
	return rc;
}

static int import_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' },
		{ "seq", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	const char *dir = NULL;
	char *end;
	int64_t seq = 0;
	bool json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1;) {
		switch (c) {
		case 'o':
			dir = optarg;
			break;
		case 's':
			seq = strtoll(optarg, &end, 10);
			if (*end || seq < 1)
				return tool_usage(&tool_ckpt_import,
						  "--seq %s is not a number of tokens", optarg);
			break;
		case 'j':
			json = true;
			break;
		default:
			return tool_option(&tool_ckpt_import, c, argv);
		}
	}
	if (argc - optind != 1)
		return tool_usage(&tool_ckpt_import, "one HF_FOLDER is needed");
	if (!dir || !*dir)
		return tool_usage(&tool_ckpt_import, "-o CKPT_DIR is missing");
	return bring_in(argv[optind], dir, seq, json);
}

const struct tool tool_ckpt_import = { "ckpt", "import", import_main,
				       "import a Hugging Face folder as a checkpoint", page };
