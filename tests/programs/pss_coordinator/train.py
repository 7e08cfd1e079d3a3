"""ParameterServerStrategy as in its guide: the chief schedules, workers and servers join."""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(10.0)


@tf.function
def step():
    weight.assign_sub(0.1 * weight)


for epoch in range(1, 4):
    for _ in range(20):
        coordinator.schedule(step)
    coordinator.join()
    print(f"Epoch {epoch}/3 - weight: {float(weight):.4f}")
