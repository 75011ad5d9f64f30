/* Plans for cuDNN's graphs, and their execution. */
#include "kernels/cuda/dnn.h"

#ifdef HAVE_CUDNN

#include <stdlib.h>

/* Functions that make a descriptor return NULL after a failure. */

static cudnnBackendDescriptor_t create(struct dnn_graph *g, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t d = NULL;
	if (g->made_count == DNN_DESCRIPTORS)
		return NULL;
	if (g->dnn->BackendCreateDescriptor(type, &d) != CUDNN_STATUS_SUCCESS)
		return NULL;
	return g->made[g->made_count++] = d;
}

static bool set_one(const struct dnn *dnn, cudnnBackendDescriptor_t d,
		    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
		    const void *value)
{
	return dnn->BackendSetAttribute(d, name, type, 1, value) == CUDNN_STATUS_SUCCESS;
}

static cudnnBackendDescriptor_t make_operations(struct dnn_graph *g, cudnnHandle_t handle)
{
	cudnnBackendDescriptor_t all = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	if (!all ||
	    !set_one(g->dnn, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle))
		return NULL;
	cudnnStatus_t rc = g->dnn->BackendSetAttribute(all, CUDNN_ATTR_OPERATIONGRAPH_OPS,
						       CUDNN_TYPE_BACKEND_DESCRIPTOR,
						       g->operation_count, g->operations);
	if (rc == CUDNN_STATUS_SUCCESS)
		rc = g->dnn->BackendFinalize(all);
	return rc == CUDNN_STATUS_SUCCESS ? all : NULL;
}

static cudnnBackendDescriptor_t ask_heuristic(struct dnn_graph *g,
					      cudnnBackendDescriptor_t operations)
{
	const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	cudnnBackendDescriptor_t h = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	bool set = h &&
		   set_one(g->dnn, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
			   CUDNN_TYPE_BACKEND_DESCRIPTOR, &operations) &&
		   set_one(g->dnn, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
	return set && g->dnn->BackendFinalize(h) == CUDNN_STATUS_SUCCESS ? h : NULL;
}

/* Whether an engine's results are the same in every run. */
static bool deterministic(const struct dnn *dnn, cudnnBackendDescriptor_t engine)
{
	cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t count = 0;
	if (dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
				     CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
				     &count, notes) != CUDNN_STATUS_SUCCESS)
		return false;
	for (int64_t i = 0; i < count; i++)
		if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
			return false;
	return true;
}

static bool try_config(struct dnn_graph *g, cudnnHandle_t handle, cudnnBackendDescriptor_t config,
		       int64_t most, bool any_order, struct dnn_plan *out)
{
	const struct dnn *dnn = g->dnn;
	int64_t count = 0;
	cudnnBackendDescriptor_t engine = create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR),
				 plan = create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	if (!engine || !plan ||
	    dnn->BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
				     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
				     &engine) != CUDNN_STATUS_SUCCESS ||
	    (!any_order && !deterministic(dnn, engine)))
		return false;
	bool made = set_one(dnn, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
			    &handle) &&
		    set_one(dnn, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
			    CUDNN_TYPE_BACKEND_DESCRIPTOR, &config) &&
		    dnn->BackendFinalize(plan) == CUDNN_STATUS_SUCCESS;
	struct dnn_plan found = { .plan = plan };
	if (!made ||
	    dnn->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
				     CUDNN_TYPE_INT64, 1, &count,
				     &found.workspace) != CUDNN_STATUS_SUCCESS ||
	    dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
				     &count, &found.engine) != CUDNN_STATUS_SUCCESS ||
	    found.workspace > most)
		return false;
	*out = found;
	return true;
}

/* At most so many of the heuristic's answers are tried. */
enum { CONFIGS = 8 };

int dnn_plan_make(struct dnn_graph *g, cudnnHandle_t handle, int64_t most, bool any_order,
		  struct dnn_plan *out, struct err *e)
{
	cudnnBackendDescriptor_t configs[CONFIGS], operations = NULL, heuristic = NULL;
	int64_t count = 0;
	if (g->rc != CUDNN_STATUS_SUCCESS)
		return err_set(e, ERR_UNSUPPORTED,
			       "cuDNN refuses %s of attention: %s; muster's own "
			       "kernels are used",
			       g->where, g->dnn->GetErrorString(g->rc));
	operations = make_operations(g, handle);
	if (operations)
		heuristic = ask_heuristic(g, operations);
	for (int i = 0; i < CONFIGS; i++)
		configs[i] = heuristic ? create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) : NULL;
	if (!configs[CONFIGS - 1] ||
	    g->dnn->BackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
					CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &count,
					configs) != CUDNN_STATUS_SUCCESS)
		return err_set(e, ERR_UNSUPPORTED,
			       "cuDNN has no engine for this attention; muster's "
			       "own kernels are used");
	for (int64_t i = 0; i < count && i < CONFIGS; i++)
		if (try_config(g, handle, configs[i], most, any_order, out))
			return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "cuDNN has no %sengine for this attention that needs at most %lld bytes; "
		       "muster's own kernels are used",
		       any_order ? "" : "deterministic ", (long long)most);
}

cudnnStatus_t dnn_plan_run(const struct dnn *dnn, cudnnHandle_t handle, const struct dnn_plan *plan,
			   const int64_t *ids, void *const *at, int count, void *workspace)
{
	cudnnBackendDescriptor_t pack = NULL;
	cudnnStatus_t rc = dnn->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
							&pack);
	if (rc != CUDNN_STATUS_SUCCESS)
		return rc;
	rc = dnn->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
				      count, ids);
	if (rc == CUDNN_STATUS_SUCCESS)
		rc = dnn->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
					      CUDNN_TYPE_VOID_PTR, count, at);
	if (rc == CUDNN_STATUS_SUCCESS)
		rc = dnn->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
					      CUDNN_TYPE_VOID_PTR, 1, &workspace);
	if (rc == CUDNN_STATUS_SUCCESS)
		rc = dnn->BackendFinalize(pack);
	if (rc == CUDNN_STATUS_SUCCESS)
		rc = dnn->BackendExecute(handle, plan->plan, pack);
	dnn->BackendDestroyDescriptor(pack);
	return rc;
}

#endif
