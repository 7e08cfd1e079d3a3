"""The only client of an In-Graph cluster: it builds the graph, and the tasks serve it."""

import json
import os

import tensorflow.compat.v1 as tf

hosts = json.loads(os.environ["TF_CONFIG"])["cluster"]
with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    towers = []
    for index in range(len(hosts["worker"])):
        with tf.device(f"/job:worker/task:{index}"):
            towers.append(tf.square(weight - index))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.add_n(towers))
    with tf.Session("grpc://" + hosts["worker"][0]) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(50):
            session.run(train)
        print("weight", round(float(session.run(weight)), 3))
