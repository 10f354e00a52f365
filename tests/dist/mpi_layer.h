/* A layer of float32 weights, for the programs that run over MPI. They define check(status, what) and err before. */
static moe_layer* layer_from(const moe_config* config, const moe_tensor* w13, const moe_tensor* w2) {
  moe_weights* weights = NULL;
  moe_selection* selection = NULL;
  moe_packed* packed = NULL;
  moe_layer* layer = NULL;
  check(moe_weights_create(config, &weights, &err), "weights");
  check(moe_weights_set(weights, "w13_weight", w13, NULL, NULL, &err), "w13_weight");
  check(moe_weights_set(weights, "w2_weight", w2, NULL, NULL, &err), "w2_weight");
  check(moe_select_backend(NULL, config, NULL, 0, &selection, &err), "selection");
  check(moe_convert_weights(NULL, selection, weights, NULL, &packed, &err), "conversion");
  check(moe_layer_create(NULL, selection, packed, NULL, &layer, &err), "layer");
  moe_packed_destroy(packed), moe_selection_destroy(selection), moe_weights_destroy(weights);
  return layer;
}
