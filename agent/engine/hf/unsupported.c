#include "agent/engine/hf/unsupported.h"

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/dcp/folder.h"
#include "base/json_member.h"
#include "base/run_paths.h"

#include <dirent.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Other files that can make the folder importable. */
enum unless { NOTHING, SAFETENSORS, DCP };

enum { NO_COMMAND, CONVERT, MERGE };

/* %1$s stands for the folder. */
static const char *const commands[] = {
	[CONVERT] = ": python3 -c \"from transformers import AutoModelForCausalLM as M; "
		    "M.from_pretrained('%1$s').save_pretrained('%1$s')\" "
		    "writes model.safetensors beside it",
	[MERGE] = ": python3 -c \"from peft import AutoPeftModelForCausalLM as M; "
		  "M.from_pretrained('%1$s').merge_and_unload()"
		  ".save_pretrained('%1$s-merged')\", and import that",
};

/* Checked in this order; a '*' at the start of a name matches anything. */
/* clang-format off */
static const struct {
	const char *file;
	enum unless unless;
	const char *is, *remedy;
	int command;
} files[] = {
	{ MANIFEST_NAME, NOTHING, "a checkpoint of muster", "it needs no import, name it in checkpoint.resume", NO_COMMAND },
	{ "adapter_config.json", NOTHING, "an adapter (PEFT), which changes another model and is none by itself", "merge it into its base first", MERGE },
	{ "adapter_model.safetensors", NOTHING, "an adapter (PEFT), which changes another model and is none by itself", "merge it into its base first",
	  MERGE },
	{ "pytorch_model.bin", SAFETENSORS, "weights in pytorch_model.bin, a pickle, which can run code where it is read", "convert it", CONVERT },
	{ "pytorch_model.bin.index.json", SAFETENSORS, "weights in pytorch_model-….bin, pickles, which can run code where they are read", "convert them",
	  CONVERT },
	{ "*.gguf", SAFETENSORS, "weights in a GGUF file, mostly quantized", "take the folder that it was made from, with model.safetensors", NO_COMMAND },
	{ "consolidated.safetensors", SAFETENSORS, "weights in Mistral's own layout", "take the folder for transformers, with model.safetensors", NO_COMMAND },
	{ "consolidated.00.pth", SAFETENSORS, "weights in Meta's own layout", "take the folder for transformers, with model.safetensors", NO_COMMAND },
	{ "*.distcp", DCP, "files of torch.distributed.checkpoint without .metadata, which is written last: the checkpoint is not complete",
	  "take one that is", NO_COMMAND },
	{ "latest_checkpointed_iteration.txt", DCP, "Megatron's checkpoints of several iterations", "name the folder of one of them, iter_NNNNNNN", NO_COMMAND },
	{ "tf_model.h5", SAFETENSORS, "weights for TensorFlow", "take a revision with model.safetensors", NO_COMMAND },
	{ "flax_model.msgpack", SAFETENSORS, "weights for Flax", "take a revision with model.safetensors", NO_COMMAND },
};
/* clang-format on */

/* Endings of the classes in `architectures` that are not language models. */
static const struct {
	const char *end, *is;
} heads[] = {
	{ "ForSequenceClassification", "a sequence classifier" },
	{ "ForTokenClassification", "a token classifier" },
	{ "ForQuestionAnswering", "a model for question answering" },
	{ "ForMultipleChoice", "a model for multiple choice" },
	{ "DoubleHeadsModel", "a model with a second head, for multiple choice" },
	{ "RewardModel", "a reward model" },
};

/* Beginnings of tensor names that belong to other models. */
/* clang-format off */
static const struct {
	const char *begin, *is;
} strangers[] = {
	{ "score.", "it is the head of a sequence classifier or reward model; import the language model that this was made from" },
	{ "classifier.", "it is the head of a classifier; import the language model that this was made from" },
	{ "qa_outputs.", "it is the head of a model for question answering; import the language model that this was made from" },
	{ "v_head.", "it is a value head of reinforcement learning; save the language model without it" },
	{ "multiple_choice_head.", "it is a second head, for multiple choice; save the language model without it" },
	{ "base_model.model.", "the model is wrapped by an adapter; merge it (merge_and_unload) and save the result" },
	{ "_orig_mod.", "the model is wrapped by torch.compile; save the one that was given to it" },
	{ "module.", "the model is wrapped by DataParallel or DDP; save its .module" },
};
/* clang-format on */

#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

static bool has_file(const char *folder, const char *name)
{
	char path[PATH_MAX];
	return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
	       !access(path, F_OK);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && !strcmp(text + n - m, end);
}

static bool has_file_like(const char *folder, const char *pattern)
{
	if (pattern[0] != '*')
		return has_file(folder, pattern);
	bool found = false;
	DIR *d = opendir(folder);
	for (struct dirent *f; d && !found && (f = readdir(d));)
		found = ends_with(f->d_name, pattern + 1);
	if (d)
		closedir(d);
	return found;
}

static bool has_safetensors(const char *folder)
{
	return has_file(folder, "model.safetensors") ||
	       has_file(folder, "model.safetensors.index.json");
}

/* Returns the path, or a placeholder word if the path has characters that a shell or Python would
 * interpret. */
static const char *in_command(const char *folder)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/+@";
	return folder[strspn(folder, plain)] ? "FOLDER" : folder;
}

int hf_unsupported_check_folder(const char *folder, struct err *e)
{
	const bool has[] = { [SAFETENSORS] = has_safetensors(folder),
			     [DCP] = has_safetensors(folder) || dcp_is_folder(folder) };
	for (int i = 0; i < LENGTH(files); i++) {
		char how[600] = "";
		const char *command = commands[files[i].command];
		if (has[files[i].unless] || !has_file_like(folder, files[i].file))
			continue;
		if (command &&
		    snprintf(how, sizeof how, command, in_command(folder)) >= (int)sizeof how)
			how[0] = '\0';
		return err_set(e, ERR_UNSUPPORTED, "%s: holds %s; %s%s", folder, files[i].is,
			       files[i].remedy, how);
	}
	return 0;
}

/* --- config.json --- */

/* Returns a string of the file for a message; NULL if it is not a string. */
static const char *word_of(const json_t *v)
{
	const char *text = json_string_value(v);
	return text && *text &&
			       !text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv"
						  "wxyz0123456789._-")]
		       ? text
		       : NULL;
}

static int check_quantized(const json_t *root, const char *name, struct err *e)
{
	const json_t *q = json_object_get(root, "quantization_config");
	const char *method = word_of(json_object_get(q, "quant_method"));
	if (!json_member_given(q))
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "%s: quantization_config: its weights are quantized (%.40s); take the model "
		       "that was quantized, whose weights are "
		       "F32, BF16 or F16",
		       name, method ? method : "it does not say how");
}

static int check_heads(const json_t *root, const char *name, struct err *e)
{
	const json_t *list = json_object_get(root, "architectures");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *class = word_of(json_array_get(list, i));
		for (int j = 0; class && j < LENGTH(heads); j++)
			if (ends_with(class, heads[j].end))
				return err_set(e, ERR_UNSUPPORTED,
					       "%s: architectures has %.80s: it is %s, whose head "
					       "gives no tokens; import the language model "
					       "that it was made from",
					       name, class, heads[j].is);
	}
	return 0;
}

int hf_unsupported_check_config(const char *text, size_t n, const char *name, struct err *e)
{
	json_t *root = json_loadb(text, n, 0, NULL);
	int rc = check_heads(root, name, e) || check_quantized(root, name, e) ? -1 : 0;
	json_decref(root);
	return rc;
}

const char *hf_unsupported_tensor(const char *name)
{
	for (int i = 0; i < LENGTH(strangers); i++)
		if (!strncmp(name, strangers[i].begin, strlen(strangers[i].begin)))
			return strangers[i].is;
	return NULL;
}

bool hf_is_folder(const char *path)
{
	const char *slash = strrchr(path, '/'), *last = slash && slash[1] ? slash + 1 : path;
	if (!strncmp(last, "step-", 5) || has_file(path, MANIFEST_NAME) ||
	    has_file(path, "job.ini"))
		return false;
	return has_file(path, "config.json") || has_safetensors(path) ||
	       has_file(path, "adapter_config.json") || has_file(path, "pytorch_model.bin");
}
