/* Any bytes as a config.json: they are refused in one line that begins with the file's name, or
 * they give a model. The model's [model] section and its own config.json are the same when they are
 * read again, and all its tensors have names. */
#include "agent/engine/hf/config.h"
#include "agent/engine/hf/names.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same_model(const struct job *a, const struct job *b)
{
	struct model_shape x, y;
	shape_of_job(a, &x);
	shape_of_job(b, &y);
	if (memcmp(&x, &y, sizeof x))
		abort();
}

static void section_reads_back(const struct job *job)
{
	struct buf text = BUF_INIT;
	struct job back;
	struct err e = ERR_INIT;
	hf_config_section(job, &text);
	if (buf_failed(&text) || job_parse(buf_str(&text), "section", &back, &e))
		abort();
	same_model(job, &back);
	buf_fini(&text);
}

static void file_reads_back(const struct job *job)
{
	struct job back;
	struct err e = ERR_INIT;
	json_t *config = hf_config_write(job, "float32", &e);
	if (!config && e.code != ERR_UNSUPPORTED)
		abort();
	if (!config)
		return;
	char *text = json_dumps(config, 0);
	if (!text || hf_config_read(text, strlen(text), "back.json", 0, &back, &e))
		abort();
	same_model(job, &back);
	free(text);
	json_decref(config);
}

static void has_names(const struct job *job)
{
	struct model_shape m;
	struct hf_names names;
	shape_of_job(job, &m);
	if (m.layers * (m.experts + 1) > 1000)
		return;
	if (hf_names_build(&m, &names, NULL))
		abort();
	for (int64_t i = 0; i < names.n; i++)
		if (!names.tensors[i].name[0] || names.tensors[i].n < 1)
			abort();
	hf_names_free(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct job job;
	if (hf_config_read((const char *)data, size, "fuzz.json", 0, &job, &e)) {
		if (e.code == ERR_NONE || strncmp(e.text, "fuzz.json", 9) || strchr(e.text, '\n'))
			abort();
		return 0;
	}
	section_reads_back(&job);
	file_reads_back(&job);
	has_names(&job);
	return 0;
}
