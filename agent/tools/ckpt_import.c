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
	"muster ckpt import — import a model of other programs as a checkpoint\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt import FOLDER -o CKPT_DIR [--config HF_FOLDER] [--seq N] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Reads a GPT-2, LLaMA or Mixtral model from one of these folders:\n"
	"    Hugging Face   config.json and model.safetensors, or the files of\n"
	"                   model.safetensors.index.json, in F32, BF16 or F16\n"
	"    PyTorch DCP    .metadata and *.distcp of torch.distributed.checkpoint, with the "
	"names\n"
	"                   of transformers, as FSDP, DDP or torch.compile wrap them\n"
	"    Megatron       the same files of dist_checkpointing, format torch_dist, with the "
	"names\n"
	"                   of Megatron-core: the folder of one iteration, iter_NNNNNNN\n"
	"  The last two have no config.json: put one into the folder, or name a Hugging Face "
	"folder\n"
	"  of the model with --config. It writes\n"
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
	"  Training starts at step 0 with the optimizer's moments at zero; optimizer state of DCP "
	"and\n"
	"  Megatron folders is not imported.\n"
	"\n"
	"  DCP and Megatron folders consist of pickles. They are parsed as data, and nothing in "
	"them\n"
	"  is ever executed; a pickle with more than tensors need is refused. float64 is rounded.\n"
	"  Megatron's rows that pad the vocabulary are cut off. A checkpoint does not tell "
	"whether\n"
	"  Megatron trained with --rotary-interleaved or --apply-layernorm-1p, which muster does "
	"not\n"
	"  compute: do not import such models.\n"
	"\n"
	"OPTIONS\n"
	"  -o CKPT_DIR  the output; it is created, and must not hold a step-00000000\n"
	"  --config HF_FOLDER\n"
	"               the folder with config.json, the tokenizer and the other files of the "
	"model,\n"
	"               if FOLDER does not have them\n"
	"  --seq N      tokens per sequence in training, in place of max_position_embeddings\n"
	"               (LLaMA and Mixtral, whose positions are rotary: no weight depends on it)\n"
	"  --json       print {path, family, tensors, parameters, bytes, carried: number of files\n"
	"               attached to the model, notes: [text], model: the section as text}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt import gpt2/ -o gpt2-ckpt\n"
	"  muster ckpt import iter_0001000/ --config llama/ -o llama-ckpt\n"
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

static int bring_in(struct hf_import_options *opt, bool json)
{
	struct err e = ERR_INIT;
	static struct hf_report report; /* too large for a small stack */
	struct notes notes = { json ? json_array() : NULL };
	const struct hf_listener listener = { put_note, &notes };
	struct buf section = BUF_INIT;
	int rc = TOOL_OK;
	opt->listener = &listener;
	if (hf_import(opt, &report, &e)) {
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
		{ "config", required_argument, NULL, 'c' },
		{ "seq", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	struct hf_import_options opt = { 0 };
	char *end;
	bool json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1;) {
		switch (c) {
		case 'o':
			opt.dir = optarg;
			break;
		case 'c':
			opt.config = optarg;
			break;
		case 's':
			opt.seq = strtoll(optarg, &end, 10);
			if (*end || opt.seq < 1)
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
		return tool_usage(&tool_ckpt_import, "one FOLDER is needed");
	if (!opt.dir || !*opt.dir)
		return tool_usage(&tool_ckpt_import, "-o CKPT_DIR is missing");
	opt.folder = argv[optind];
	return bring_in(&opt, json);
}

const struct tool tool_ckpt_import = { "ckpt", "import", import_main,
				       "import a model of Hugging Face, PyTorch or Megatron",
				       page };
