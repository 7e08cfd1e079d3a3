#!/bin/bash
python fit.py 2>&1 | tee train.log
