#include "agent/engine/hf/reader.h"

#include "agent/engine/dcp/folder.h"
#include "agent/engine/hf/config.h"
#include "agent/engine/hf/dcp.h"
#include "agent/engine/hf/unsupported.h"
#include "agent/engine/hf/weights.h"
#include "base/file.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct hf_reader {
	struct job job;
	struct hf_names names;
	struct model_shape shape;
	struct hf_weights *weights; /* one of the two is NULL */
	struct hf_dcp *dcp;
	float *numbers, *room; /* for the largest tensor; the largest transposed one */
	int64_t noted;         /* tensors with NaNs or infinities */
};

static int read_config(const char *folder, int64_t seq, struct job *job, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", folder);
	if (dcp_is_folder(folder) && access(path, F_OK))
		return err_set(e, ERR_USAGE,
			       "%s: has no config.json, and neither PyTorch nor Megatron writes "
			       "one; name a Hugging Face folder of the model with --config",
			       folder);
	int rc = file_slurp(path, HF_CONFIG_BYTES_MAX, &text, e) ||
				 hf_unsupported_check_config(buf_str(&text), text.len, path, e) ||
				 hf_config_read(buf_str(&text), text.len, path, seq, job, e)
			 ? -1
			 : 0;
	buf_fini(&text);
	return rc;
}

static int take_room(struct hf_reader *s, const char *folder, struct err *e)
{
	size_t most = 0, transposed = 0;
	for (int64_t i = 0; i < s->names.n; i++) {
		const struct hf_tensor *t = &s->names.tensors[i];
		size_t n = (size_t)hf_tensor_elements(t);
		most = n > most ? n : most;
		transposed = t->transposed && n > transposed ? n : transposed;
	}
	s->numbers = malloc(most * sizeof(float) + 1);
	s->room = malloc(transposed * sizeof(float) + 1);
	if (!s->numbers || !s->room)
		return err_set(e, ERR_NOMEM, "%s: no memory for its largest tensor, of %zu numbers",
			       folder, most);
	return 0;
}

/* As transformers, takes model.safetensors first. */
static int open_weights(struct hf_reader *s, const char *folder, struct err *e)
{
	if (dcp_is_folder(folder) && !hf_weights_exist(folder))
		return hf_dcp_open(folder, &s->dcp, e) ||
				       hf_dcp_fit(s->dcp, &s->names, &s->shape, e)
			       ? -1
			       : 0;
	return hf_weights_open(folder, &s->weights, e) || hf_weights_fit(s->weights, &s->names, e)
		       ? -1
		       : 0;
}

int hf_reader_open(const char *folder, const char *config, int64_t seq, struct hf_reader **out,
		   struct err *e)
{
	struct hf_reader *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", folder);
	int rc = hf_unsupported_check_folder(folder, e) ||
		 read_config(config ? config : folder, seq, &s->job, e);
	if (!rc) {
		shape_of_job(&s->job, &s->shape);
		rc = hf_names_build(&s->shape, &s->names, e) || open_weights(s, folder, e) ||
		     take_room(s, folder, e);
	}
	if (rc) {
		hf_reader_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

void hf_reader_close(struct hf_reader *s)
{
	if (!s)
		return;
	free(s->room);
	free(s->numbers);
	hf_dcp_close(s->dcp);
	hf_weights_close(s->weights);
	hf_names_free(&s->names);
	free(s);
}

const struct job *hf_reader_job(const struct hf_reader *s)
{
	return &s->job;
}

const struct hf_names *hf_reader_names(const struct hf_reader *s)
{
	return &s->names;
}

const char *hf_reader_format(const struct hf_reader *s)
{
	return !s->dcp ? "huggingface" : hf_dcp_is_megatron(s->dcp) ? "megatron" : "torch_dcp";
}

static void note_numbers(struct hf_reader *s, const struct hf_tensor *t, hf_reader_note *note,
			 void *arg)
{
	int64_t nans = 0, infinities = 0, n = hf_tensor_elements(t);
	char text[HF_NAME + 160];
	for (int64_t i = 0; i < n; i++) {
		nans += isnan(s->numbers[i]) != 0;
		infinities += isinf(s->numbers[i]) != 0;
	}
	if (!nans && !infinities)
		return;
	snprintf(text, sizeof text,
		 "tensor %s: %" PRId64 " NaN and %" PRId64 " infinite of its %" PRId64 " numbers",
		 t->name, nans, infinities, n);
	if (note && s->noted++ < HF_NOTES)
		note(arg, text);
}

static int read_tensor(struct hf_reader *s, const struct hf_tensor *t, hf_reader_put *put,
		       hf_reader_note *note, void *arg, struct err *e)
{
	const float *at = s->numbers;
	if (s->dcp ? hf_dcp_read(s->dcp, t, s->numbers, s->room, e)
		   : hf_weights_read(s->weights, &s->names, t, s->numbers, s->room, e))
		return -1;
	note_numbers(s, t, note, arg);
	for (int i = 0; i < t->n; i++) {
		if (put(arg, &t->parts[i], t->shape[1], at, e))
			return -1;
		at += t->parts[i].rows * t->shape[1];
	}
	return 0;
}

int hf_reader_read(struct hf_reader *s, hf_reader_put *put, hf_reader_note *note, void *arg,
		   struct err *e)
{
	char text[96];
	s->noted = 0;
	if (s->dcp && note)
		hf_dcp_tell(s->dcp, note, arg);
	for (int64_t i = 0; i < s->names.n; i++)
		if (read_tensor(s, &s->names.tensors[i], put, note, arg, e))
			return -1;
	snprintf(text, sizeof text, "%" PRId64 " more tensors hold NaNs or infinities",
		 s->noted - HF_NOTES);
	if (note && s->noted > HF_NOTES)
		note(arg, text);
	return 0;
}
