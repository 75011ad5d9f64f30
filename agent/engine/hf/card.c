#include "agent/engine/hf/card.h"

#include "base/human.h"
#include "base/version.h"
#include "plan/spec/job/keys.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

static void write_header(const struct manifest *m, const char *family, struct buf *out)
{
	buf_puts(out, "---\nlibrary_name: transformers\npipeline_tag: text-generation\n");
	if (m->from[0])
		buf_printf(out, "base_model: %s\n", m->from);
	buf_printf(out, "tags:\n- %s\n- muster\n---\n\n", family);
}

static void write_training(const struct manifest *m, const struct job *job, struct buf *out)
{
	char tokens[HUMAN];
	double loss = ckpt_number(&m->state, "loss", NAN);
	buf_printf(out, "| steps | %" PRId64 " of %" PRId64 " |\n", m->state.step,
		   m->state.total_steps);
	buf_printf(out, "| tokens trained on | %s, in %" PRId64 " samples of %" PRId64 " |\n",
		   human_count((double)m->state.samples * (double)job->model.seq, "", tokens),
		   m->state.samples, job->model.seq);
	if (isfinite(loss))
		buf_printf(out, "| training loss of the last step | %.4f |\n", loss);
	if (m->state.optimizer[0])
		buf_printf(out, "| optimizer | %s |\n", m->state.optimizer);
}

void hf_card_write(const struct manifest *m, const struct job *job, int64_t params,
		   const struct hf_type *type, struct buf *out)
{
	const char *family = job_enum_word(offsetof(struct job, model.family),
					   (int)job->model.family);
	char count[HUMAN];
	write_header(m, family, out);
	buf_printf(out, "# %s, %s parameters\n\n", family, human_count((double)params, "", count));
	if (m->state.step == 0)
		buf_printf(out, "Imported and exported by muster %s, not trained in between.\n\n",
			   MUSTER_VERSION);
	else
		buf_printf(out, "Trained with muster %s%s%s.\n\n", MUSTER_VERSION,
			   m->from[0] ? ", beginning with the weights of " : "", m->from);
	buf_puts(out, "| | |\n| --- | --- |\n");
	if (m->state.step)
		write_training(m, job, out);
	buf_printf(out, "| context | %" PRId64 " tokens |\n| dtype | %s |\n\n", job->model.seq,
		   type->torch);
	buf_puts(out, "```python\nfrom transformers import AutoModelForCausalLM, "
		      "AutoTokenizer\n\nmodel = AutoModelForCausalLM.from_pretrained(\"FOLDER\")\n"
		      "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```\n");
}
